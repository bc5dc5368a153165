import { setTimeout as sleep } from 'node:timers/promises';
import { describe, expect, test } from 'vitest';
import { registerRelay } from '../../src/outbox/delivering/register-relay.ts';
import { startTestPostgres } from '../support/postgres-server.ts';
import { RelayScenario, withScenario } from '../support/relay-scenario.ts';
import { startTransactionPooler } from '../support/transaction-pooler.ts';
import { until } from '../support/wait.ts';

/** Until a relay is declared lost: 300 ms to notice, 2.4 s of grace. The rest is for a machine that is busy. */
const takeoverMs = 6_000;
/** Far beyond any test: what is noticed is not noticed by the lease. */
const leaseMs = 600_000;

const ends = (scenario: RelayScenario, relay: string) =>
  scenario.journal.read().filter((entry) => entry.phase === 'end' && entry.relay === relay).length;
const begins = (scenario: RelayScenario, relay: string) =>
  scenario.journal.read().filter((entry) => entry.phase === 'begin' && entry.relay === relay).length;

const lostRelays = async (scenario: RelayScenario): Promise<string[]> => {
  const rows = await scenario.db.query(`select name from postcommit.outbox_relays where ended_as = 'lost'`);
  return rows.map(({ name }) => name);
};

const sessionLocks = (scenario: RelayScenario) =>
  scenario.db.query('select name, session_lock from postcommit.outbox_relays where ended_at is null order by name');

/** The server must be older than 10 s before a relay is declared lost for its free lock. */
async function settledServer(scenario: RelayScenario): Promise<void> {
  const age = `select now() - pg_postmaster_start_time() > interval '11 seconds' as old`;
  await until(async () => (await scenario.db.query(age))[0].old, {
    what: 'the server is old enough',
    timeoutMs: 20_000,
  });
}

/** As if it ran on another host, where this one cannot look for its process. */
const moveAway = (scenario: RelayScenario, relay: string) =>
  scenario.db.query(`update postcommit.outbox_relays set host_id = 'elsewhere' where name = $1`, [relay]);

describe('a relay that is killed', () => {
  test(
    'is replaced by another within seconds, whatever its lease',
    withScenario(async (scenario) => {
      await settledServer(scenario);
      for (const victim of ['first', 'second']) {
        const child = await scenario.child(victim, { leaseMs });
        await scenario.emit([{ aggregateId: victim, script: { hangIn: victim } }]);
        await scenario.emitLine(victim, 3);
        await until(() => begins(scenario, victim) === 1, { what: 'the victim has it' });
        await moveAway(scenario, victim);
        const survivor = await scenario.relay(`after ${victim}`, { leaseMs });
        child.kill('SIGKILL');
        await until(() => ends(scenario, `after ${victim}`) === 4, {
          what: 'all are delivered',
          timeoutMs: takeoverMs,
        });
        await survivor.stop();
      }
      expect(await lostRelays(scenario)).toEqual(['first', 'second']);
      expect(await scenario.findings({ killed: ['first', 'second'] })).toMatchObject({ lost: [], orderViolations: [] });
    }),
  );

  test(
    'and restarted alone continues at once, with and without a session lock',
    withScenario(async (scenario) => {
      for (const victim of ['first', 'second']) {
        const child = await scenario.child(victim, { leaseMs });
        await scenario.emit([{ aggregateId: victim, script: { hangIn: victim } }]);
        await scenario.emitLine(victim, 3);
        await until(() => begins(scenario, victim) === 1, { what: 'the victim has it' });
        if (victim === 'second') await scenario.db.query('update postcommit.outbox_relays set session_lock = false');
        child.kill('SIGKILL');
        await child.exited;
        const restarted = await scenario.relay(`after ${victim}`, { leaseMs });
        // Well within the grace.
        await until(() => ends(scenario, `after ${victim}`) === 4, { what: 'all are delivered', timeoutMs: 2_000 });
        await restarted.stop();
      }
      expect(await lostRelays(scenario)).toEqual(['first', 'second']);
      expect(await scenario.findings({ killed: ['first', 'second'] })).toMatchObject({ lost: [], orderViolations: [] });
    }),
  );

  test(
    'is not declared lost for its lock if it has none, only when its lease ends',
    withScenario(async (scenario) => {
      await settledServer(scenario);
      const gone = { name: 'gone', host: 'elsewhere', pid: 1, leaseMs: 6_000 };
      const token = await registerRelay(scenario.db.pool, 'postcommit', gone);
      const left = async () =>
        (
          await scenario.db.query(
            `select extract(epoch from lease_until - coalesce(ended_at, now()))::float as s, ended_as
             from postcommit.outbox_relays where token = $1`,
            [token],
          )
        )[0];
      await scenario.relay('survivor', { leaseMs: 900 });
      await until(async () => (await left()).ended_as === 'lost', { what: 'its lease ended', timeoutMs: 12_000 });
      expect((await left()).s).toBeLessThanOrEqual(0);
    }),
  );
});

describe('a relay behind a transaction pooler', () => {
  test(
    'holds no session lock, and leaves none in the sessions of the pooler',
    withScenario(async (scenario) => {
      const pooler = await startTransactionPooler(scenario.db.url, 2);
      try {
        const connectionString = pooler.url(scenario.db.url);
        for (const listen of [true, false]) {
          await scenario.relay(`pooled ${listen}`, { connectionString, listen, leaseMs: 900 });
        }
        await scenario.emitLine('a', 3);
        await scenario.drained();
        expect(await sessionLocks(scenario)).toEqual([
          { name: 'pooled false', session_lock: false },
          { name: 'pooled true', session_lock: false },
        ]);
        const locks = `select from pg_locks where locktype = 'advisory'
          and database = (select oid from pg_database where datname = current_database())`;
        // A claim holds one for a moment; that of a session would stay.
        await until(async () => (await scenario.db.query(locks)).length === 0, { what: 'no advisory lock is held' });
        expect(await lostRelays(scenario)).toEqual([]);
      } finally {
        await Promise.all(scenario.relays.map((relay) => relay.stop()));
        await pooler.close();
      }
    }),
  );
});

describe('a relay that loses its connections', () => {
  test(
    'for two seconds is not taken over, and delivers nothing twice',
    withScenario(async (scenario) => {
      await settledServer(scenario);
      const proxy = await scenario.proxy();
      const cut = await scenario.relay('cut', { leaseMs, connectionString: proxy.url(scenario.db.url) });
      await scenario.emit(Array.from({ length: 4 }, (_, n) => ({ aggregateId: `a${n}`, script: { workMs: 4_000 } })));
      await until(() => begins(scenario, 'cut') === 4, { what: 'it is at work' });
      const { token } = cut.stats();
      await scenario.relay('watcher', { leaseMs });
      proxy.refuse();
      proxy.cut();
      await sleep(2_000);
      proxy.accept();
      await scenario.drained();
      expect(cut.stats().token).toBe(token);
      expect(await lostRelays(scenario)).toEqual([]);
      expect(await sessionLocks(scenario)).toEqual([
        { name: 'cut', session_lock: true },
        { name: 'watcher', session_lock: true },
      ]);
      expect(await scenario.findings()).toEqual({ lost: [], orderViolations: [], overlaps: [], duplicates: 0 });
    }),
  );

  test(
    'starts no delivery until it holds its lock again',
    withScenario(async (scenario) => {
      const proxy = await scenario.proxy();
      const relay = await scenario.relay('one', { leaseMs, connectionString: proxy.url(scenario.db.url) });
      proxy.refuse();
      proxy.cut('heartbeat');
      await until(() => !relay.stats().connected, { what: 'it has lost its heartbeat connection' });
      const claimed = () => proxy.count({ connection: 'claims', text: /claim_/ });
      let claims = claimed();
      // One that was sent before may still be on its way to the proxy.
      await until(
        async () => {
          const before = claims;
          await sleep(200);
          claims = claimed();
          return claims === before;
        },
        { what: 'no claim is on its way' },
      );
      await scenario.emitLine('a', 3);
      await sleep(1_500); // More than pollIntervalMs.
      expect(claimed()).toBe(claims);
      expect(scenario.journal.read()).toEqual([]);
      proxy.accept();
      await scenario.drained();
      // The relay counts an event when its result is answered, a moment after the database has it.
      await until(() => relay.stats().delivered === 3, { what: 'all results are answered' });
      expect(relay.stats().connected).toBe(true);
    }),
  );

  test('because PostgreSQL restarts is not declared lost, however long it takes to connect again', async () => {
    const server = await startTestPostgres();
    const scenario = await RelayScenario.create({ serverUrl: server.connectionString });
    try {
      const proxy = await scenario.proxy();
      const slow = await scenario.relay('slow', { connectionString: proxy.url(scenario.db.url) });
      await scenario.emit([{ aggregateId: 'a', script: { workMs: 7_000 } }]);
      await until(() => begins(scenario, 'slow') === 1, { what: 'it is at work' });
      const quick = await scenario.relay('quick');
      const tokens = [slow.stats().token, quick.stats().token];
      proxy.refuse();
      await server.restart('immediate');
      await until(() => quick.stats().connected, { what: 'the other one is connected' });
      await sleep(5_000); // Twice the grace.
      proxy.accept();
      await scenario.drained();
      expect([slow.stats().token, quick.stats().token]).toEqual(tokens);
      expect(await lostRelays(scenario)).toEqual([]);
      expect(await scenario.findings()).toEqual({ lost: [], orderViolations: [], overlaps: [], duplicates: 0 });
    } finally {
      await scenario.close();
      await server.stop();
    }
  });
});
