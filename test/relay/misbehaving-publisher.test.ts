import { describe, expect, test } from 'vitest';
import type { Message, PublishOutcome } from '../../src/publishers/publisher.ts';
import { withScenario } from '../support/relay-scenario.ts';
import { ScriptedPublisher } from '../support/scripted-publisher.ts';
import { deferred, until, within } from '../support/wait.ts';

const noHandlers = { handlers: {}, pollIntervalMs: 50 };
const soon = { probeDelayMs: 50, probeDelayMsMax: 100 };

/** The unhandled rejections during the work. */
async function unhandled(work: () => Promise<unknown>): Promise<unknown[]> {
  const seen: unknown[] = [];
  const note = (error: unknown) => seen.push(error);
  process.on('unhandledRejection', note);
  try {
    await work();
    await new Promise((resolve) => setImmediate(resolve));
  } finally {
    process.off('unhandledRejection', note);
  }
  return seen;
}

describe('a publisher that breaks its contract harms only its own destination', () => {
  test(
    'a reason that PostgreSQL cannot store, and endless ones, open the circuit and close it again',
    withScenario(async (scenario) => {
      const events = new ScriptedPublisher();
      const bad: PublishOutcome = { kind: 'unavailable', reason: `said \0 ${'x'.repeat(100_000)}`, retryAfterMs: -1 };
      events.outcomeOf = () => bad;
      const relay = await scenario.relay('r', {
        ...noHandlers,
        destinations: { events: { publisher: events, ...soon } },
      });
      await scenario.emitLine('a', 5);
      await until(() => relay.stats().unavailable >= 5, { what: 'they wait' });
      events.outcomeOf = () => ({ kind: 'delivered' });
      await until(() => events.received.length === 5, { what: 'they have arrived' });
    }),
  );

  test(
    'an absurd retryAfterMs is bounded, and delays no other event',
    withScenario(async (scenario) => {
      const events = new ScriptedPublisher();
      events.outcomeOf = ({ key }) =>
        key === 'a' ? { kind: 'failed', reason: 'x', retryAfterMs: 1e20 } : { kind: 'delivered' };
      const relay = await scenario.relay('r', { ...noHandlers, destinations: { events } });
      await scenario.emit([{ aggregateId: 'a' }, { aggregateId: 'b' }]);
      await until(() => relay.stats().delivered === 1 && relay.stats().failed === 1, {
        what: 'both are settled',
      });
      events.outcomeOf = () => ({ kind: 'unavailable', reason: 'x', retryAfterMs: Number.POSITIVE_INFINITY });
      await scenario.emit([{ aggregateId: 'c' }]);
      const state = 'select state from postcommit.outbox_destinations';
      await until(async () => (await scenario.db.query(state))[0].state === 'open', { what: 'the circuit is open' });
    }),
  );

  test(
    'outcomes that are none are failures of the messages',
    withScenario(async (scenario) => {
      const events = new ScriptedPublisher();
      events.publish = async (batch) => batch.map(() => undefined as never);
      const seen = await unhandled(async () => {
        const relay = await scenario.relay('r', { ...noHandlers, destinations: { events } });
        await scenario.emitLine('a', 5);
        await until(() => relay.stats().failed > 0, { what: 'it has failed' });
      });
      expect(seen).toEqual([]);
    }),
  );

  const nonsense: Record<string, (batch: readonly Message[]) => unknown> = {
    'a list with holes': ({ length }) => Object.assign(new Array(length), { 0: { kind: 'delivered' } }),
    'no list': ({ length }) => ({ length, every: () => true }),
    'a reason that is a symbol': (batch) => batch.map(() => ({ kind: 'failed', reason: Symbol('x') })),
    'a reason that cannot be shown': (batch) => {
      const fail = () => {
        throw new Error('no text');
      };
      return batch.map(() => ({ kind: 'failed', reason: { toString: fail, toJSON: fail } }));
    },
  };
  test.each(Object.entries(nonsense))(
    '%s as the answer: nothing counts as delivered, and nothing is stranded',
    (_, answer) =>
      withScenario(async (scenario) => {
        const events = new ScriptedPublisher();
        const publish = events.publish.bind(events);
        const firstAnswered = deferred();
        events.publish = async (batch) => {
          events.publish = publish;
          firstAnswered.resolve();
          return answer(batch) as PublishOutcome[];
        };
        const seen = await unhandled(async () => {
          await scenario.emit(Array.from({ length: 10 }, (_each, n) => ({ aggregateId: String(n) })));
          const relay = await scenario.relay('r', {
            ...noHandlers,
            retry: { delaysMs: [50, 50] },
            destinations: { events: { publisher: events, ...soon } },
          });
          await firstAnswered.promise;
          await until(() => relay.stats().delivered === 10, { what: 'all are delivered' });
        });
        expect(new Set(events.received.map(({ eventId }) => eventId)).size).toBe(10);
        expect(seen).toEqual([]);
      })(),
  );

  test(
    'one that throws over the part of a topic gets its events all the same',
    withScenario(async (scenario) => {
      const events = new ScriptedPublisher();
      const of = () => {
        throw new Error('no such host');
      };
      Object.assign(events, { parts: { of, inFlightMax: 2 } });
      const relay = await scenario.relay('r', { ...noHandlers, destinations: { events } });
      await scenario.emitLine('a', 5);
      await until(() => relay.stats().delivered === 5, { what: 'all are delivered' });
    }),
  );

  test(
    'close() and health() that throw at once',
    withScenario(async (scenario) => {
      const events = new ScriptedPublisher();
      events.mood = 'away';
      events.health = () => {
        throw new Error('no such method');
      };
      events.close = () => {
        throw new Error('closed already');
      };
      const seen = await unhandled(async () => {
        const relay = await scenario.relay('r', {
          ...noHandlers,
          destinations: { events: { publisher: events, ...soon } },
        });
        const error = 'select error from postcommit.outbox_destinations';
        const isNoted = async () => (await scenario.db.query(error))[0]?.error === 'no such method';
        await until(isNoted, { what: 'the probe has failed' });
        await relay.stop();
        expect(relay.stats().state).toBe('idle');
      });
      expect(seen).toEqual([]);
    }),
  );

  test(
    'a serializer that never answers is a failed attempt, and keeps no other destination waiting',
    withScenario(async (scenario) => {
      const [bad, good] = [new ScriptedPublisher(), new ScriptedPublisher()];
      const serializer = { serialize: () => new Promise<never>(() => {}) };
      const relay = await scenario.relay('r', {
        ...noHandlers,
        prefetchMax: 200,
        batchSizeMax: 100,
        destinations: { bad: { publisher: bad, publishTimeoutMs: 500, serializer }, good },
        route: ({ type }) => ({ to: type }),
      });
      await scenario.emit(Array.from({ length: 400 }, (_, n) => ({ aggregateId: `x${n}`, type: 'bad' })));
      await scenario.emit([{ aggregateId: 'g', type: 'good' }]);
      await until(() => good.received.length === 1, { what: 'the other one has its event' });
      await until(() => relay.stats().failed > 0, { what: 'the attempt has failed' });
    }),
  );

  test(
    'one that throws and then takes its time is not sent to behind the relay’s back',
    withScenario(async (scenario) => {
      const events = new ScriptedPublisher({ batchSizeMax: 20, batchesInFlightMax: 1 });
      let takesBatches = false;
      const arrived: string[] = [];
      let calls = 0;
      const answer = deferred();
      events.publish = async (batch) => {
        calls++;
        if (!takesBatches && batch.length > 1) throw new Error('no batches today');
        // Ignores its signal, and takes longer than it has.
        if (!takesBatches) await answer.promise;
        for (const { eventId } of batch) arrived.push(eventId);
        return batch.map(() => ({ kind: 'delivered' as const }));
      };
      const sent = await scenario.emitLine('a', 20);
      const relay = await scenario.relay('r', {
        ...noHandlers,
        destinations: { events: { publisher: events, publishTimeoutMs: 600, ...soon } },
      });
      await until(() => relay.stats().unavailable > 0, { what: 'it was given up' });
      answer.resolve();
      const callsBefore = calls;
      takesBatches = true;
      await until(() => relay.stats().delivered === 20, { what: 'all are delivered' });
      const lastOfEach = sent.map((id) => arrived.lastIndexOf(id));
      expect(lastOfEach).toEqual([...lastOfEach].sort((one, other) => one - other));
      expect(calls - callsBefore).toBeLessThan(15); // And not one call for each that was given up.
    }),
  );

  test(
    'innocent events lose no attempt behind one that shares the route’s key',
    withScenario(async (scenario) => {
      const events = new ScriptedPublisher();
      events.outcomeOf = ({ eventType }) =>
        eventType === 'poison' ? { kind: 'failed', reason: 'bad' } : { kind: 'delivered' };
      const relay = await scenario.relay('r', {
        ...noHandlers,
        retry: { delaysMs: [50, 50] },
        destinations: { events },
        route: () => ({ to: 'events', key: 'tenant-1' }),
      });
      const others = Array.from({ length: 10 }, (_, n) => ({ aggregateId: String(n + 1) }));
      await scenario.emit([{ aggregateId: '0', type: 'poison' }, ...others]);
      await until(() => relay.stats().delivered === 10 && relay.stats().deadLettered === 1, { what: 'all is done' });
      const failed = await scenario.db.query('select distinct seq from postcommit.outbox_failures');
      expect(failed).toHaveLength(1);
    }),
  );

  test(
    'a stop does not wait for it',
    withScenario(async (scenario) => {
      const events = new ScriptedPublisher();
      events.close = () => new Promise(() => {});
      const relay = await scenario.relay('r', { ...noHandlers, destinations: { events } });
      await within(relay.stop(), { what: 'it has stopped' });
    }),
  );
});
