import { setTimeout as sleep } from 'node:timers/promises';
import { describe, expect, test } from 'vitest';
import { silentLogger } from '../../src/telemetry/logging.ts';
import { seededRandom } from '../support/random.ts';
import { type RelayScenario, withScenario } from '../support/relay-scenario.ts';
import { startTcpProxy } from '../support/tcp-proxy.ts';
import { deferred, until, within } from '../support/wait.ts';

const openRelays = (scenario: RelayScenario) =>
  scenario.db.query('select name from postcommit.outbox_relays where ended_at is null');
const connections = (scenario: RelayScenario) =>
  scenario.db.query(
    `select application_name from pg_stat_activity where datname = current_database() and application_name like 'postcommit %'`,
  );

async function expectNothingLeft(scenario: RelayScenario): Promise<void> {
  expect(await openRelays(scenario)).toEqual([]);
  await until(async () => (await connections(scenario)).length === 0, { what: 'no connection is left' });
}

describe('G10 clean stop', () => {
  test(
    'work under way finishes, the rest goes back without an attempt, and a second relay continues within a second',
    withScenario(async (scenario) => {
      const relay = await scenario.relay('first', { inFlightMax: 5, stopTimeoutMs: 5_000 });
      await scenario.emit(
        Array.from({ length: 200 }, (_, n) => ({ aggregateId: `a${n % 40}`, script: { workMs: 150 } })),
      );
      await until(() => relay.stats().inFlight === 5 && relay.stats().waiting > 2, { what: 'it is at work' });
      await scenario.relay('second', { pollIntervalMs: 60_000 });
      const stopped = relay.stop();
      await stopped;
      const stoppedAt = performance.now();
      const { delivered, released } = relay.stats();
      expect(relay.stats()).toMatchObject({ state: 'idle', inFlight: 0, waiting: 0, failed: 0 });
      expect(delivered).toBe(scenario.journal.read().filter((e) => e.relay === 'first' && e.phase === 'end').length);
      expect(released).toBeGreaterThan(0);
      await until(() => scenario.journal.read().some((entry) => entry.relay === 'second'), {
        what: 'the second continues',
      });
      expect(performance.now() - stoppedAt).toBeLessThan(1_000);
      await scenario.drained();
      expect(await scenario.findings()).toMatchObject({ lost: [], orderViolations: [], overlaps: [], duplicates: 0 });
      expect(await scenario.db.query('select * from postcommit.outbox_failures')).toEqual([]);
    }),
  );

  test(
    'a handler that looks at its signal gives up at the deadline, and its event costs no attempt',
    withScenario(async (scenario) => {
      const reasons: unknown[] = [];
      const warnings: unknown[] = [];
      const relay = await scenario.relay('one', {
        stopTimeoutMs: 200,
        logger: { ...silentLogger, warn: (...line) => warnings.push(line) },
        handlers: {
          scripted: {
            script: (_event, ctx) =>
              sleep(60_000, undefined, { signal: ctx.signal }).catch((error) => {
                reasons.push(ctx.signal.reason);
                throw error;
              }),
          },
        },
      });
      await scenario.emitLine('a', 3);
      await until(() => relay.stats().inFlight === 1, { what: 'the handler runs' });
      await within(relay.stop(), { timeoutMs: 2_200, what: 'it stopped' });
      expect(reasons[0]).toMatchObject({ name: 'PostcommitError', code: 'POSTCOMMIT_E_RELAY_STOPPING' });
      expect(warnings).toEqual([
        [{ inFlight: 1, stopTimeoutMs: 200 }, expect.stringContaining('did not finish in time')],
      ]);
      expect(await scenario.db.query('select attempts, claimed_by from postcommit.outbox_queue')).toEqual(
        Array(3).fill({ attempts: 0, claimed_by: null }),
      );
      await expectNothingLeft(scenario);
    }),
  );

  test(
    'a handler that ignores its signal does not hold it up',
    withScenario(async (scenario) => {
      const work = deferred();
      const relay = await scenario.relay('one', {
        stopTimeoutMs: 100,
        handlers: { scripted: { script: () => work.promise } },
      });
      await scenario.emitLine('a', 3);
      await until(() => relay.stats().inFlight === 1, { what: 'the handler runs' });
      await within(relay.stop(), { timeoutMs: 2_100, what: 'it stopped' });
      await expectNothingLeft(scenario);
      const [{ free }] = await scenario.db.query(
        'select count(*)::integer as free from postcommit.outbox_queue where claimed_by is null and attempts = 0',
      );
      expect(free).toBe(3);
      work.resolve(); // Too late to count.
      await scenario.relay('two');
      await scenario.drained();
      expect(scenario.journal.ends()).toHaveLength(3);
    }),
  );

  test.each(['stall', 'refuse'] as const)(
    'the database cannot be reached (%s): it stops in bounded time, and the process ends',
    (how) =>
      withScenario(async (scenario) => {
        const proxy = await scenario.proxy();
        const connectionString = proxy.url(scenario.db.url);
        const child = await scenario.child('one', {
          connectionString,
          stopTimeoutMs: 500,
          leaseMs: 3_000,
          inFlightMax: 2,
        });
        await scenario.emit(['a', 'b'].map((aggregateId) => ({ aggregateId, script: { workMs: 300 } })));
        await scenario.emitLine('a', 3, { workMs: 300 });
        await until(() => scenario.journal.read().length >= 2, { what: 'it is at work' });
        if (how === 'stall') proxy.stall('postcommit');
        proxy.refuse();
        if (how === 'refuse') proxy.cut();
        child.kill('SIGTERM');
        await child.next(({ event }) => event === 'stopped', 10_000);
        // Nothing may keep the process alive then: no timer, no loop that tries on.
        await within(child.exited, { timeoutMs: 3_000, what: 'the process ended' });
        proxy.accept();
        await scenario.relay('two', { leaseMs: 3_000 });
        await scenario.drained();
        expect((await scenario.findings({ killed: ['one'] })).lost).toEqual([]);
      })(),
  );
});

describe('G10 start and stop in any order', () => {
  test(
    'the last word counts',
    withScenario(async (scenario) => {
      const relay = scenario.idleRelay('one');
      const state = () => relay.stats().state;
      await relay.stop();
      expect(state()).toBe('idle');
      await Promise.all([relay.start(), relay.start()]);
      expect(state()).toBe('running');
      await relay.start();
      await Promise.all([relay.stop(), relay.stop()]);
      expect(state()).toBe('idle');
      await Promise.all([relay.start(), relay.stop()]);
      expect(state()).toBe('idle');
      await relay.start();
      await Promise.all([relay.stop(), relay.start()]);
      expect(state()).toBe('running');
      await Promise.all([relay.stop(), relay.start(), relay.stop()]);
      expect(state()).toBe('idle');
      await expectNothingLeft(scenario);
    }),
  );

  test(
    'thirty random ways, with work under way',
    withScenario(async (scenario) => {
      const random = seededRandom();
      const relay = scenario.idleRelay('one', { stopTimeoutMs: 50, inFlightMax: 3 });
      for (let round = 0; round < 30; round++) {
        await scenario.emitLine(`a${round % 4}`, 3, { workMs: 2 });
        const words = Array.from({ length: random.integer(2, 6) }, () => random.pick(['start', 'stop'] as const));
        const done: Promise<void>[] = [];
        for (const word of words) {
          done.push(relay[word]());
          if (random.chance(0.3)) await sleep(random.integer(0, 20));
          if (random.chance(0.2)) await done.at(-1);
        }
        await within(Promise.all(done), { what: words.join(', ') });
        expect(relay.stats().state, words.join(', ')).toBe(words.at(-1) === 'start' ? 'running' : 'idle');
      }
      await relay.stop();
      await expectNothingLeft(scenario);
      await relay.start();
      await scenario.drained();
      await relay.stop();
      expect(await scenario.findings()).toMatchObject({ lost: [], orderViolations: [], overlaps: [] });
      await expectNothingLeft(scenario);
    }),
  );

  test(
    'a start that fails leaves nothing open, says why, and may be tried again',
    withScenario(async (scenario) => {
      const proxy = await scenario.proxy();
      const relay = scenario.idleRelay('one', { connectionString: proxy.url(scenario.db.url) });
      proxy.refuse();
      const stopped = relay.start().catch((error) => error);
      const code = (await stopped).code;
      expect(code).toBe('POSTCOMMIT_E_DATABASE_UNREACHABLE');
      expect(relay.stats().state).toBe('idle');
      await Promise.all([relay.start().catch(() => {}), relay.stop()]);
      expect(relay.stats().state).toBe('idle');
      proxy.accept();
      await relay.start();
      expect(relay.stats().state).toBe('running');
      await relay.stop();
      await expectNothingLeft(scenario);
    }),
  );

  test(
    'stop() ends runOnce(), which gives back what it did not begin',
    withScenario(async (scenario) => {
      const relay = scenario.idleRelay('one', { inFlightMax: 2, stopTimeoutMs: 100 });
      await scenario.emit(Array.from({ length: 100 }, (_, n) => ({ aggregateId: `a${n}`, script: { workMs: 50 } })));
      const once = relay.runOnce();
      await expect(relay.runOnce()).rejects.toMatchObject({ code: 'POSTCOMMIT_E_RELAY_STATE' });
      await until(() => relay.stats().delivered > 2, { what: 'it is at work' });
      await relay.stop();
      expect((await once).delivered).toBeLessThan(100);
      expect(relay.stats().state).toBe('idle');
      await expectNothingLeft(scenario);
      await relay.runOnce();
      expect(await scenario.queued()).toBe(0);
      expect(await scenario.findings()).toMatchObject({ lost: [], duplicates: 0 });
    }),
  );

  test(
    'a database that is down for longer does not hold it up, whatever the relay waits for',
    withScenario(async (scenario) => {
      const { hostname, port } = new URL(scenario.db.url);
      const proxy = await startTcpProxy({ host: hostname, port: Number(port) });
      try {
        const relay = await scenario.relay('one', { connectionString: proxy.url(scenario.db.url), stopTimeoutMs: 500 });
        proxy.refuse();
        proxy.cut();
        // Three connections, each at its seventh try: over 1.5 s, and every second the relay looks at its destinations.
        await until(() => proxy.refused >= 21, { what: 'the relay tries to reconnect' });
        await within(relay.stop(), { timeoutMs: 10_000, what: 'it has stopped' });
        expect(relay.stats().state).toBe('idle');
      } finally {
        await proxy.close();
      }
    }),
  );
});
