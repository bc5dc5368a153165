import { describe, expect, test } from 'vitest';
import { createRelay, type Handler } from '../../src/index.ts';
import { type RelayScenario, withScenario } from '../support/relay-scenario.ts';
import { until, within } from '../support/wait.ts';

/** What a relay must not leave behind: its registration, claims, connections. */
async function expectNothingLeft({ db }: RelayScenario): Promise<void> {
  expect(await db.query('select from postcommit.outbox_relays where ended_at is null')).toEqual([]);
  expect(await db.query('select from postcommit.outbox_queue where claimed_by is not null')).toEqual([]);
  const connections = `select from pg_stat_activity
                        where datname = current_database() and application_name like 'postcommit %'`;
  await until(async () => (await db.query(connections)).length === 0, { what: 'no connection is left' });
}

describe('runOnce', () => {
  test(
    'delivers what is due now, also behind a first batch, and answers what it did',
    withScenario(async (scenario) => {
      await scenario.emitLine('many', 250);
      await scenario.emit([
        { aggregateId: 'bad', script: { reject: true } },
        { aggregateId: 'again', script: { failTimes: 1 } },
        { aggregateId: 'later', delayMs: 3_600_000 },
      ]);
      const relay = scenario.idleRelay('one', { batchSizeMax: 20, prefetchMax: 40, retry: { delaysMs: [3_600_000] } });
      expect(await relay.runOnce()).toEqual({ delivered: 250, failed: 1, deadLettered: 1, complete: true });
      expect(await relay.runOnce()).toEqual({ delivered: 0, failed: 0, deadLettered: 0, complete: true });
      expect(relay.stats()).toMatchObject({ state: 'idle', delivered: 250, claimed: 252 });
      await relay.start();
      await expect(relay.runOnce()).rejects.toMatchObject({ code: 'POSTCOMMIT_E_RELAY_STATE' });
    }),
  );

  test(
    'takes over from one that crashed, although it never beats itself',
    withScenario(async (scenario) => {
      await scenario.emitLine('a', 5);
      await scenario.db.query(
        `insert into postcommit.outbox_relays (name, host, pid, lease_until)
         values ('crashed', 'h', 1, now() - interval '2 minutes')`,
      );
      await scenario.db.query(
        'update postcommit.outbox_queue set claimed_by = (select max(token) from postcommit.outbox_relays)',
      );
      // No relay is declared lost while the server has been up for less than a lease.
      const [{ up }] = await scenario.db.query(
        `select extract(epoch from now() - pg_postmaster_start_time()) * 1000 as up`,
      );
      const leaseMs = Math.max(300, Math.min(30_000, Math.floor(Number(up))));
      expect(await scenario.idleRelay('one', { leaseMs }).runOnce()).toMatchObject({ delivered: 5 });
    }),
  );

  test(
    'a database that is unreachable, or not migrated, is an error with a code',
    withScenario(async (scenario) => {
      const proxy = await scenario.proxy();
      const relay = scenario.idleRelay('one', { connectionString: proxy.url(scenario.db.url) });
      proxy.refuse();
      await expect(relay.runOnce()).rejects.toMatchObject({ code: 'POSTCOMMIT_E_DATABASE_UNREACHABLE' });
      const elsewhere = createRelay({
        connectionString: scenario.db.url,
        schema: 'nowhere',
        handlers: { other: { ignore: () => {} } },
      });
      await expect(elsewhere.runOnce()).rejects.toMatchObject({ code: 'POSTCOMMIT_E_MIGRATION_MISSING' });
      expect(elsewhere.stats().state).toBe('idle');
    }),
  );

  test(
    'ends at its time limit: work under way finishes, the rest is released without an attempt',
    withScenario(async (scenario) => {
      await scenario.emit(Array.from({ length: 400 }, (_, n) => ({ aggregateId: `a${n}`, script: { workMs: 50 } })));
      const relay = scenario.idleRelay('one', { inFlightMax: 2, stopTimeoutMs: 5_000 });
      const started = performance.now();
      // All of it would take ten seconds.
      const { delivered, failed, complete } = await relay.runOnce({ timeoutMs: 1_500 });
      expect(performance.now() - started).toBeLessThan(6_500);
      expect({ failed, complete }).toEqual({ failed: 0, complete: false });
      const journal = scenario.journal.read();
      expect(journal.filter(({ phase }) => phase === 'end')).toHaveLength(delivered);
      expect(journal.filter(({ phase }) => phase === 'begin')).toHaveLength(delivered);
      expect(await scenario.queued()).toBe(400 - delivered);
      expect(await scenario.db.query('select from postcommit.outbox_queue where attempts > 0')).toEqual([]);
      await expectNothingLeft(scenario);

      const rest = await scenario.idleRelay('two').runOnce({ timeoutMs: 30_000 });
      expect(rest).toEqual({ delivered: 400 - delivered, failed: 0, deadLettered: 0, complete: true });
      expect(await scenario.findings()).toMatchObject({ lost: [], duplicates: 0 });
      await expectNothingLeft(scenario);
    }),
  );

  test(
    'a handler that takes longer than limit and stopTimeoutMs is aborted, and its event costs no attempt',
    withScenario(async (scenario) => {
      await scenario.emitLine('a', 3);
      const reasons: unknown[] = [];
      const handler: Handler = (_event, { signal }) =>
        new Promise((_, reject) => {
          signal.addEventListener('abort', () => {
            reasons.push(signal.reason);
            reject(signal.reason);
          });
        });
      const relay = scenario.idleRelay('one', { stopTimeoutMs: 100, handlers: { scripted: { handler } } });
      const once = within(relay.runOnce({ timeoutMs: 500 }), { timeoutMs: 10_000, what: 'it has ended' });
      expect(await once).toEqual({ delivered: 0, failed: 0, deadLettered: 0, complete: false });
      expect(String(reasons)).toContain('The relay is stopping');
      expect(await scenario.db.query('select attempts from postcommit.outbox_queue')).toEqual(
        Array(3).fill({ attempts: 0 }),
      );
      await expectNothingLeft(scenario);
    }),
  );

  test(
    'a limit that is over before the database has answered leaves nothing',
    withScenario(async (scenario) => {
      await scenario.emitLine('a', 3);
      const relay = scenario.idleRelay('one');
      expect(await relay.runOnce({ timeoutMs: 1 })).toMatchObject({ delivered: 0, complete: false });
      await expectNothingLeft(scenario);
      expect(await relay.runOnce()).toMatchObject({ delivered: 3, complete: true });
    }),
  );

  test(
    'two processes that run at the same time, and a relay, share the events: none twice, each aggregate in order',
    withScenario(async (scenario) => {
      const lines = Array.from({ length: 30 }, (_, n) => `a${n}`);
      for (const line of lines) await scenario.emitLine(line, 10, { workMs: 20 });
      const options = { inFlightMax: 4, batchSizeMax: 20, prefetchMax: 40 };
      const once = { timeoutMs: 60_000 };
      const calls = await Promise.all(['one', 'two'].map((name) => scenario.child(name, options, { once })));
      // The relay alone needs little more than a second for all of them.
      await until(() => scenario.journal.ends().length > 0, { what: 'one of the two delivers', timeoutMs: 30_000 });
      await scenario.relay('relay', options);
      const results = await Promise.all(calls.map((call) => call.next(({ event }) => event === 'ended')));
      for (const { result } of results) expect(result).toMatchObject({ failed: 0, deadLettered: 0, complete: true });
      await scenario.drained();
      expect(await scenario.findings()).toMatchObject({ lost: [], orderViolations: [], overlaps: [], duplicates: 0 });
      expect(scenario.journal.ends()).toHaveLength(300);
      expect(results.reduce((sum, { result }) => sum + result.delivered, 0)).toBeGreaterThan(0);
      for (const name of ['one', 'two']) {
        const own = scenario.journal.read().filter(({ relay, phase }) => relay === name && phase === 'end');
        expect(results.find(({ relay }) => relay === name)?.result).toMatchObject({ delivered: own.length });
      }
      await scenario.relays[0]?.stop();
      await expectNothingLeft(scenario);
    }),
  );

  test(
    'bad options are refused',
    withScenario(async (scenario) => {
      const relay = scenario.idleRelay('one');
      for (const timeoutMs of [0, -1, 1.5, Number.NaN, Number.POSITIVE_INFINITY, 86_400_001]) {
        await expect(relay.runOnce({ timeoutMs })).rejects.toMatchObject({ code: 'POSTCOMMIT_E_BAD_OPTION' });
      }
      await expect(relay.runOnce({ timeoutMS: 5 } as object)).rejects.toThrow('Did you mean timeoutMs?');
      expect(relay.stats().state).toBe('idle');
    }),
  );
});
