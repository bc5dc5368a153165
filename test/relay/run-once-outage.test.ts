import { describe, expect, test } from 'vitest';
import type { Handler } from '../../src/relay/deliver/handlers.ts';
import { statement } from '../support/postgres-proxy.ts';
import { withScenario } from '../support/relay-scenario.ts';
import { deferred, until, within } from '../support/wait.ts';

const options = { leaseMs: 1_000, stopTimeoutMs: 300, pollIntervalMs: 100 };

describe('runOnce', () => {
  test.each(['settle', 'claim'] as const)('fails in bounded time when the database goes away before a %s', (verb) =>
    withScenario(async (scenario) => {
      const proxy = await scenario.proxy();
      await scenario.emitLine('a', 5);
      await scenario.emitLine('b', 5);
      const connectionString = proxy.url(scenario.db.url);
      const relay = scenario.idleRelay('one', { ...options, connectionString, batchSizeMax: 4, prefetchMax: 4 });
      const trap = proxy.holdRequest({ text: statement[verb], after: 1 });
      const once = relay.runOnce();
      once.catch(() => {});
      await within(trap.caught, { what: 'it is at work' });
      proxy.refuse();
      proxy.cut();
      trap.release();
      const outcome = within(once, { timeoutMs: 15_000, what: 'it gave up' });
      await expect(outcome).rejects.toMatchObject({ code: 'POSTCOMMIT_E_DATABASE_UNREACHABLE' });
      expect(relay.stats()).toMatchObject({ state: 'idle', connected: false, inFlight: 0, waiting: 0 });
      proxy.accept();
      await scenario.relay('two', options);
      await scenario.drained();
      expect((await scenario.findings()).lost).toEqual([]);
    })(),
  );

  test(
    'continues after a short outage, to the end',
    withScenario(async (scenario) => {
      const proxy = await scenario.proxy();
      await scenario.emitLine('a', 20);
      const connectionString = proxy.url(scenario.db.url);
      const relay = scenario.idleRelay('one', { ...options, leaseMs: 6_000, connectionString });
      const settle = proxy.holdRequest({ text: statement.settle });
      const once = relay.runOnce();
      once.catch(() => {});
      await within(settle.caught, { what: 'it is at work' });
      proxy.cut();
      settle.release();
      expect(await once).toEqual({ delivered: 20, failed: 0, deadLettered: 0, complete: true });
      expect(await scenario.queued()).toBe(0);
      expect(scenario.journal.ends()).toHaveLength(20);
    }),
  );

  test(
    'does not take a lost lease for the end of its work',
    withScenario(async (scenario) => {
      await scenario.emit(['a', 'b', 'c'].map((aggregateId) => ({ aggregateId })));
      const proceed = deferred();
      const handler: Handler = (event) => (event.seq === '1' ? proceed.promise : undefined);
      const relay = scenario.idleRelay('one', { ...options, inFlightMax: 1, handlers: { scripted: { handler } } });
      const lost: object[] = [];
      relay.on('leaseLost', (facts) => lost.push(facts));
      const once = relay.runOnce();
      await until(() => relay.stats().inFlight === 1, { what: 'the first is under way' });
      await scenario.db.query(`update postcommit.outbox_relays set ended_at = now(), ended_as = 'lost'`);
      await until(() => lost.length === 1, { what: 'it noticed' });
      proceed.resolve();
      await within(once, { what: 'it came to an end' });
      expect(await scenario.queued()).toBe(0);
      expect(relay.stats()).toMatchObject({ state: 'idle', delivered: 3 });
    }),
  );
});
