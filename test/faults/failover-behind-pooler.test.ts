import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import type { EmbeddedPostgres } from '../../src/embedded/postgres-server.ts';
import { createOutbox, fromPg } from '../../src/index.ts';
import { createTestDatabase, type TestDatabase } from '../support/database.ts';
import { startTestPostgres } from '../support/postgres-server.ts';
import { withScenario } from '../support/relay-scenario.ts';
import { startTransactionPooler } from '../support/transaction-pooler.ts';
import { until } from '../support/wait.ts';

const aggregates = 20;

describe('a failover behind a transaction pooler, to a server that knows less', () => {
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
});
