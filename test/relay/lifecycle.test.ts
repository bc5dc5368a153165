import { subscribe, unsubscribe } from 'node:diagnostics_channel';
import { setTimeout as sleep } from 'node:timers/promises';
import { describe, expect, onTestFinished, test } from 'vitest';
import { createRelay, type LifecycleEvents } from '../../src/index.ts';
import { withScenario } from '../support/relay-scenario.ts';
import { nextEvent, until } from '../support/wait.ts';

const names: (keyof LifecycleEvents)[] = [
  'started',
  'stopped',
  'claimed',
  'delivered',
  'failed',
  'deadLettered',
  'released',
  'relayLost',
];

describe('the lifecycle events of a relay', () => {
  test(
    'on its emitter and on node:diagnostics_channel, the same',
    withScenario(async (scenario) => {
      const emitted: [string, object][] = [];
      const published: [string, object][] = [];
      const relay = scenario.idleRelay('teller', { retry: { delaysMs: [0] }, inFlightMax: 1 });
      const subscriptions = names.map((name) => {
        relay.on(name, (facts: object) => emitted.push([name, facts]));
        const listener = (facts: unknown) => void published.push([name, facts as object]);
        subscribe(`postcommit:relay:${name}`, listener);
        return () => unsubscribe(`postcommit:relay:${name}`, listener);
      });
      try {
        const [id] = await scenario.emit([
          { aggregateId: 'a', script: { failTimes: 1 } },
          { aggregateId: 'b', script: { reject: true } },
        ]);
        await relay.start();
        await scenario.drained();
        await scenario.emitLine('c', 20, { workMs: 50 });
        await until(() => relay.stats().waiting > 0, { what: 'some wait' });
        await relay.stop();
        expect(published).toEqual(emitted);
        const of = (name: string) => emitted.filter(([told]) => told === name).map(([, facts]) => facts);
        expect(of('started')).toEqual([{ relay: 'teller', token: expect.stringMatching(/^\d+$/) }]);
        const facts = {
          eventId: id,
          eventType: 'scripted',
          aggregateType: 'thing',
          aggregateId: 'a',
          seq: '1',
          queue: 'default',
        };
        expect(of('failed')).toEqual([
          { ...facts, attempt: 1, delayMs: 0, error: 'attempt 1 fails', target: 'script' },
        ]);
        expect(of('delivered')[0]).toEqual({
          ...facts,
          attempt: 2,
          targets: ['script'],
          latencyMs: expect.any(Number),
        });
        expect(of('deadLettered')).toMatchObject([
          { aggregateId: 'b', reason: 'rejected', blocking: false, attempt: 1 },
        ]);
        expect(of('released').length).toBeGreaterThan(0);
        expect(of('stopped')).toEqual([{ relay: 'teller', released: of('released').length }]);
        const claimed = of('claimed').reduce((sum, each) => sum + (each as { count: number }).count, 0);
        expect(claimed).toBe(relay.stats().claimed);
      } finally {
        for (const end of subscriptions) end();
      }
    }),
  );

  test.each([
    ['throws', () => undefined],
    ['rejects', async () => {}],
  ])('a listener that %s is logged and changes nothing', (name, begin) =>
    withScenario(async (scenario) => {
      const unhandled: unknown[] = [];
      const note = (error: unknown) => void unhandled.push(error);
      process.on('unhandledRejection', note);
      onTestFinished(() => void process.off('unhandledRejection', note));
      const lines: object[] = [];
      const ignore = () => {};
      const error = (fields: object, message: string) => void lines.push({ ...fields, message });
      const relay = scenario.idleRelay('one', { logger: { debug: ignore, info: ignore, warn: ignore, error } });
      const fail = () => {
        throw new Error(`the listener ${name}`);
      };
      relay.on('delivered', () => begin()?.then(fail) ?? fail());
      const delivered = nextEvent(relay, 'delivered');
      await relay.start();
      await scenario.emit([{ aggregateId: 'a' }]);
      await delivered;
      await scenario.drained();
      await until(() => lines.length > 0, { what: 'it is logged' });
      expect(lines).toEqual([
        { suppressed: 0, lifecycle: 'delivered', error: `the listener ${name}`, message: 'a lifecycle listener threw' },
      ]);
      await sleep(10); // An unhandled rejection is reported a moment later.
      expect(unhandled).toEqual([]);
    })(),
  );

  test(
    'stats: what it does now, and what it did',
    withScenario(async (scenario) => {
      const relay = scenario.idleRelay('one', { inFlightMax: 2, leaseMs: 300 });
      const nothing = {
        claimed: 0,
        delivered: 0,
        failed: 0,
        deadLettered: 0,
        released: 0,
        unavailable: 0,
        cancelled: 0,
        fenced: 0,
        takenOver: 0,
      };
      const idle = {
        state: 'idle',
        token: undefined,
        inFlight: 0,
        waiting: 0,
        queues: {},
        connected: false,
        listening: false,
        leading: false,
        maintenance: [],
      };
      expect(relay.stats()).toEqual({ ...nothing, ...idle });
      await relay.start();
      expect(relay.stats()).toMatchObject({ ...nothing, state: 'running', connected: true, listening: true });
      await scenario.emit(Array.from({ length: 10 }, (_, n) => ({ aggregateId: `a${n}`, script: { workMs: 200 } })));
      await until(() => relay.stats().inFlight === 2, { what: 'two are under way' });
      const { claimed, waiting } = relay.stats();
      expect(waiting).toBeGreaterThan(0);
      expect(claimed).toBe(2 + waiting);
      await until(
        async () => {
          const [row] = await scenario.db.query('select stats from postcommit.outbox_relays');
          return row.stats.claimed >= claimed && row.stats.inFlight === 2;
        },
        { what: 'operators see it too' },
      );
      await scenario.drained();
      await until(() => relay.stats().delivered === 10, { what: 'it is done' });
      await relay.stop();
      expect(relay.stats()).toEqual({ ...nothing, ...idle, claimed: 10, delivered: 10 });
    }),
  );

  test.each(['on its thread', 'on the event loop'])(
    'a heartbeat %s writes what the relay has done until then',
    (where) =>
      withScenario(async (scenario) => {
        const options = { leaseMs: 9_000, heartbeatThread: where === 'on its thread' };
        // Only a child process, which has the loader for its sources, has a thread.
        if (options.heartbeatThread) await scenario.child('one', options);
        else await scenario.relay('one', options);
        await scenario.emitLine('a', 50);
        await scenario.drained();
        // The thread is told every 0.9 s.
        const reportedAt = (await scenario.now()) + 1_000;
        const row = await until(
          async () => {
            const [found] = await scenario.db.query(
              `select stats, extract(epoch from heartbeat_at) * 1000 as "at" from postcommit.outbox_relays`,
            );
            return Number(found.at) > reportedAt && found;
          },
          { what: 'the next heartbeat' },
        );
        expect(row.stats).toMatchObject({ claimed: 50, delivered: 50 });
      })(),
  );

  test(
    'a lost relay is reported by the one that takes over',
    withScenario(async (scenario) => {
      const victim = await scenario.child('victim', { leaseMs: 600 });
      await scenario.emit([{ aggregateId: 'a', script: { hangIn: 'victim' } }]);
      await until(() => scenario.journal.read().length === 1, { what: 'the handler runs' });
      const relay = await scenario.relay('survivor', { leaseMs: 600 });
      const relayLost = nextEvent(relay, 'relayLost');
      victim.kill('SIGKILL');
      expect(await relayLost).toMatchObject({ name: 'victim', pid: victim.pid, token: expect.stringMatching(/^\d+$/) });
      await scenario.drained();
      await until(() => relay.stats().delivered === 1, { what: 'the relay knows that it delivered' });
      expect(relay.stats()).toMatchObject({ takenOver: 1, delivered: 1 });
    }),
  );
});

test('options are checked before anything happens', () => {
  const good = { connectionString: 'postgres://nowhere/x', handlers: { other: { ignore: () => {} } } };
  const bad: [string, object][] = [
    ['connectionString', { connectionString: '' }],
    ['leaseMs', { leaseMs: 10 }],
    ['inFlightMax', { inFlightMax: 0 }],
    ['batchSizeMax', { batchSizeMax: 1.5 }],
    ['prefetchMax', { prefetchMax: 10, batchSizeMax: 20 }],
    ['poison', { poison: 'ignore' }],
    ['noHandler', { noHandler: 'drop' }],
    ['retry', { retry: { attemptsMax: -1 } }],
    ['must be a function', { handlers: { 'order.created': { mail: 'mail@example.com' } } }],
    ['There is no option inFlightmax. Did you mean inFlightMax?', { inFlightmax: 3 }],
    ['named handlers', { handlers: { 'order.created': null } }],
  ];
  for (const [text, options] of bad) {
    expect(() => createRelay({ ...good, ...options } as never), text).toThrow(
      expect.objectContaining({ code: 'POSTCOMMIT_E_BAD_OPTION', message: expect.stringContaining(text) }),
    );
  }
  expect(() => createRelay({ ...good, schema: 'x'.repeat(64) })).toThrow(
    expect.objectContaining({ code: 'POSTCOMMIT_E_BAD_SCHEMA_NAME' }),
  );
});
