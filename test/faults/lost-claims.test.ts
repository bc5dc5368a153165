import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import type { EmbeddedPostgres } from '../../src/embedded/postgres-server.ts';
import { Gate } from '../support/gate.ts';
import type { PostgresProxy } from '../support/postgres-proxy.ts';
import { startTestPostgres } from '../support/postgres-server.ts';
import { quietPool } from '../support/quiet-pool.ts';
import { RelayScenario } from '../support/relay-scenario.ts';
import { scriptedHandler } from '../support/scripted-handler.ts';
import { until } from '../support/wait.ts';

/** A crash loses claims that are not on disk yet. Which ones is chance, so they are removed while no relay is connected. */
describe('a server that has lost the last claims', () => {
  let server: EmbeddedPostgres;
  let scenario: RelayScenario;
  let proxy: PostgresProxy;
  beforeEach(async () => {
    server = await startTestPostgres();
    scenario = await RelayScenario.create({ serverUrl: server.connectionString });
    proxy = await scenario.proxy();
  });
  afterEach(async () => {
    await scenario.close();
    await server.stop();
  });

  const url = () => proxy.url(scenario.db.url);
  const calls = (phase: 'begin' | 'end') => scenario.journal.read().filter((entry) => entry.phase === phase).length;

  const startTime = async () => (await scenario.db.query('select pg_postmaster_start_time()::text as at'))[0].at;

  /** PostgreSQL ends all backends then, and recovers, but its main process runs on. */
  async function killBackend(): Promise<void> {
    const pool = quietPool(server.connectionString, { max: 1 });
    const startedAt = await startTime();
    const { pid } = (await pool.query<{ pid: number }>('select pg_backend_pid() as pid')).rows[0] as { pid: number };
    process.kill(pid, 'SIGKILL');
    await until(() => scenario.relays.every((relay) => !relay.stats().connected), { what: 'the relays are cut off' });
    await until(async () => (await startTime()) === startedAt, { what: 'the server is up, and was not restarted' });
    await pool.end();
  }

  async function crash(end: () => Promise<void>, ...changes: string[]): Promise<void> {
    proxy.refuse();
    await end();
    for (const change of changes) {
      await until(
        () =>
          scenario.db.query(change).then(
            () => true,
            () => false,
          ),
        { what: 'the server is up' },
      );
    }
  }

  const restart = () => server.restart('immediate');

  test.each([
    ['a crash', restart],
    ['a crash of one backend', killBackend],
  ])('after %s: live relays keep what they deliver, and deliver nothing twice', async (_what, end) => {
    // Half of the first events end while the server is down, the others when it is up again.
    const gates = { even: new Gate(), odd: new Gate() };
    const gateOf = (key: string) => gates[Number(key.slice(1)) % 2 === 0 ? 'even' : 'odd'];
    const relays = await Promise.all(
      ['a', 'b'].map((name) => {
        const script = scriptedHandler(scenario.journal, name, ({ aggregate }) => gateOf(aggregate.id).opened);
        return scenario.relay(name, { connectionString: url(), handlers: { scripted: { script } } });
      }),
    );
    const keys = Array.from({ length: 12 }, (_, n) => `k${n}`);
    for (let round = 0; round < 2; round++) await scenario.emit(keys.map((aggregateId) => ({ aggregateId })));
    await until(() => calls('begin') === keys.length, { what: 'the first of each key is begun' });
    const tokens = relays.map((relay) => relay.stats().token);
    await crash(end, 'update postcommit.outbox_queue set claimed_by = null');
    gates.even.open();
    await until(() => calls('end') === keys.length / 2, { what: 'half of them have ended' });
    proxy.accept();
    await until(() => calls('end') >= keys.length, { what: 'the events behind them are delivered' });
    gates.odd.open();
    await scenario.drained();
    expect(await scenario.findings()).toEqual({ lost: [], orderViolations: [], overlaps: [], duplicates: 0 });
    expect(relays.map((relay) => relay.stats().token)).toEqual(tokens);
  });

  test('and events: results of these settle no new event that has the same seq', async () => {
    const gates = { old: new Gate(), new: new Gate() };
    const count = 20;
    const begun = new Map<string, number>();
    const relay = await scenario.relay('one', {
      connectionString: url(),
      retry: { delaysMs: [100] },
      handlers: {
        scripted: {
          see: async ({ id, aggregate }) => {
            const attempt = (begun.get(id) ?? 0) + 1;
            begun.set(id, attempt);
            await (aggregate.id === 'old' || aggregate.id === 'new' ? gates[aggregate.id].opened : undefined);
            if (aggregate.id === 'new' && attempt === 1) throw new Error('the first attempt fails');
          },
        },
      },
    });
    const { token } = relay.stats();
    const seqs = async (ids: string[]) =>
      (await scenario.db.query('select seq from postcommit.outbox_events where id = any ($1) order by seq', [ids])).map(
        ({ seq }) => seq,
      );
    const emit = (aggregateId: string, length = count) =>
      scenario.emit(Array.from({ length }, () => ({ aggregateId, key: null })));
    const isQueued = async (id: string) =>
      (
        await scenario.db.query(
          'select from postcommit.outbox_queue join postcommit.outbox_events using (seq) where id = $1',
          [id],
        )
      ).length > 0;
    const oldSeqs = await seqs(await emit('old'));
    await until(() => begun.size === count, { what: 'handlers of the old events are at work' });
    await crash(
      restart,
      'delete from postcommit.outbox_queue',
      'delete from postcommit.outbox_events',
      `select setval(pg_get_serial_sequence('postcommit.outbox_events', 'seq'), 1, false)`,
    );
    const ids = await emit('new');
    expect(await seqs(ids)).toEqual(oldSeqs);
    proxy.accept();
    await until(() => begun.size === 2 * count, { what: 'handlers of the new events are at work' });
    gates.old.open();
    await until(() => relay.stats().inFlight === count, { what: 'handlers of the old events have ended' });
    // Results are written in order: theirs, if any, before the one of an event that ends later.
    const [marker] = await emit('marker', 1);
    await until(async () => !(await isQueued(marker as string)), { what: 'results have been written since' });
    gates.new.open();
    await scenario.drained();
    expect(ids.map((id) => begun.get(id))).toEqual(ids.map(() => 2));
    expect(relay.stats().token).not.toBe(token);
  });
});
