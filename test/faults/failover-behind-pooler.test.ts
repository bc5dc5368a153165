import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import type { EmbeddedPostgres } from '../../src/embedded/postgres-server.ts';
import { createOutbox, fromPg } from '../../src/index.ts';
import { createTestDatabase, type TestDatabase } from '../support/database.ts';
import { Gate } from '../support/gate.ts';
import { startTestPostgres } from '../support/postgres-server.ts';
import { withScenario } from '../support/relay-scenario.ts';
import { startTransactionPooler } from '../support/transaction-pooler.ts';
import { until } from '../support/wait.ts';

const aggregates = 20;

describe('a failover behind a transaction pooler, to a server that has less', () => {
  let other: EmbeddedPostgres;
  let standby: TestDatabase;
  beforeAll(async () => {
    other = await startTestPostgres();
    standby = await createTestDatabase({ serverUrl: other.connectionString });
  });
  afterAll(async () => {
    await standby.close();
    await other.stop();
  });

  test(
    'a relay registers there, and delivers what has lower seqs than what it has seen, at once and in order',
    withScenario(async (scenario) => {
      const pooler = await startTransactionPooler(scenario.db.url, 4);
      try {
        const seen: { aggregate: string; n: number }[] = [];
        const relay = await scenario.relay('one', {
          connectionString: pooler.url(scenario.db.url),
          listen: false,
          maintenance: false,
          pollIntervalMs: 50,
          handlers: {
            scripted: {
              see: (event) => void seen.push({ aggregate: event.aggregate.id, n: event.payload as number }),
            },
          },
        });
        // Enough for the relay's low-water mark to rise, several times.
        for (let round = 0; round < 4; round++) {
          await scenario.emit(Array.from({ length: 1_500 }, (_, n) => ({ aggregateId: `a${n % aggregates}` })));
          await scenario.drained();
        }
        const before = relay.stats().token;
        await pooler.switchTo(standby.url);
        seen.length = 0;
        const outbox = createOutbox({ db: fromPg(standby.pool), notify: false });
        const each = 100;
        for (let n = 0; n < each; n++) {
          await outbox.transaction((_tx, emit) =>
            emit(
              Array.from({ length: aggregates }, (_, a) => ({
                type: 'scripted',
                aggregate: ['thing', `a${a}`] as const,
                payload: n,
              })),
            ),
          );
        }
        // The relay looks at everything, without regard to its mark, twice a minute: sooner than that means that it knew.
        await until(() => seen.length >= aggregates * each, { timeoutMs: 10_000, what: 'everything is delivered' });
        for (let a = 0; a < aggregates; a++) {
          const order = seen.filter(({ aggregate }) => aggregate === `a${a}`).map(({ n }) => n);
          expect(order).toEqual(Array.from({ length: each }, (_, n) => n));
        }
        expect(relay.stats().token).not.toBe(before);
        expect(await standby.query('select name from postcommit.outbox_relays where ended_at is null')).toHaveLength(1);
        await relay.stop();
      } finally {
        await pooler.close();
      }
    }),
  );

  test(
    'with events in hand: results of these settle no new event that has the same seq',
    withScenario(async (scenario) => {
      const proxy = await scenario.proxy();
      const pooler = await startTransactionPooler(proxy.url(scenario.db.url), 4);
      const fresh = await createTestDatabase({ serverUrl: other.connectionString });
      const gates = { old: new Gate(), new: new Gate(), none: new Gate() };
      try {
        gates.none.open();
        const count = 20;
        const begun = new Map<string, number>();
        const relay = await scenario.relay('one', {
          connectionString: pooler.url(scenario.db.url),
          listen: false,
          maintenance: false,
          pollIntervalMs: 50,
          retry: { delaysMs: [100] },
          handlers: {
            scripted: {
              see: async ({ id, aggregate }) => {
                const attempt = (begun.get(id) ?? 0) + 1;
                begun.set(id, attempt);
                await gates[aggregate.id as keyof typeof gates].opened;
                if (aggregate.id === 'new' && attempt === 1) throw new Error('the first attempt fails');
              },
            },
          },
        });
        const { token } = relay.stats();
        const events = (aggregateId: keyof typeof gates, length: number) =>
          Array.from({ length }, () => ({ aggregateId, key: null }));
        const old = await scenario.emit(events('old', count));
        await until(() => begun.size === count, { what: 'handlers of the old events are at work' });

        // As long as the server is the same, a claim is preceded by one call, which needs no transaction.
        const asked = () => proxy.count({ connection: 'pooler', text: /^select "postcommit"\.server_run\(\)$/ });
        const before = asked();
        for (let n = 0; n < 3; n++) {
          const [id] = await scenario.emit(events('none', 1));
          await until(() => begun.has(id as string), { what: 'another event is delivered' });
        }
        expect(asked() - before).toBeGreaterThanOrEqual(3);
        expect(proxy.count({ connection: 'pooler', text: /\bregained\b/ })).toBe(0);

        // The other server has replicated the relay's registration, and lacks the events.
        const [{ registered }] = await scenario.db.query(
          'select row_to_json(r)::text as registered from postcommit.outbox_relays r where ended_at is null',
        );
        await fresh.query(
          `insert into postcommit.outbox_relays select * from json_populate_record(null::postcommit.outbox_relays, $1)`,
          [registered],
        );
        await pooler.switchTo(fresh.url);
        // A claim may be on its way while the pooler switches: it asked the old server, and finds nothing here yet.
        await until(() => relay.stats().token !== token, { what: 'the relay has given up its token' });
        const outbox = createOutbox({ db: fromPg(fresh.pool), notify: false });
        const ids = await outbox.transaction((_tx, emit) =>
          emit(
            Array.from({ length: count }, () => ({
              type: 'scripted',
              aggregate: ['thing', 'new'] as const,
              key: null,
              payload: null,
            })),
          ),
        );
        const seqsOn = async (db: TestDatabase, given: readonly string[]) =>
          db.query('select seq from postcommit.outbox_events where id = any ($1) order by seq', [given]);
        expect(await seqsOn(fresh, ids)).toEqual(await seqsOn(scenario.db, old));
        await until(() => ids.every((id) => begun.has(id)), { what: 'handlers of the new events are at work' });
        gates.old.open();
        await until(() => relay.stats().inFlight === count, { what: 'handlers of the old events have ended' });
        gates.new.open();
        const queued = () => fresh.query('select from postcommit.outbox_queue');
        await until(async () => (await queued()).length === 0, { what: 'the queue is empty' });
        expect(ids.map((id) => begun.get(id))).toEqual(ids.map(() => 2));
        await relay.stop();
      } finally {
        for (const gate of Object.values(gates)) gate.open();
        await pooler.close();
        await fresh.close();
      }
    }),
  );
});
