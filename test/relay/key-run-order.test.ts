import { setTimeout as sleep } from 'node:timers/promises';
import { describe, expect, test } from 'vitest';
import type { Message, PublishOutcome } from '../../src/publishers/publisher.ts';
import { seededRandom } from '../support/random.ts';
import { withScenario } from '../support/relay-scenario.ts';
import { ScriptedPublisher } from '../support/scripted-publisher.ts';
import { until } from '../support/wait.ts';

const ok: PublishOutcome = { kind: 'delivered' };
const byType = ({ type }: { type: string }) => ({ to: 'events', topic: type });
const sorted = (numbers: readonly number[]) => [...numbers].sort((one, other) => one - other);
const line = (count: number, aggregateId: string, type = 'topic') =>
  Array.from({ length: count }, () => ({ aggregateId, type }));

/** Where the events that arrived stand among those that were emitted, each at its first arrival. */
function arrivals(received: readonly Message[], emitted: readonly string[]): number[] {
  const ids = new Set(received.map(({ eventId }) => eventId));
  return [...ids].map((id) => emitted.indexOf(id)).filter((index) => index >= 0);
}

describe('a publisher that takes several events of a key in one batch', () => {
  test.each(['failed', 'rejected', 'unavailable'] as const)(
    'the next event of a key is not sent behind a run in which one failed: %s',
    (kind) =>
      withScenario(async (scenario) => {
        const events = new ScriptedPublisher({ batchSizeMax: 5, batchesInFlightMax: 1, keyRuns: true });
        const ids = await scenario.emit(line(15, 'K'));
        let hasFailed = false;
        events.outcomeOf = ({ eventId }) => {
          if (eventId !== ids[1] || hasFailed) return ok;
          hasFailed = true;
          return { kind, reason: 'as scripted' };
        };
        const relay = await scenario.relay('r', { handlers: {}, destinations: { events }, route: byType });
        const { delivered, deadLettered } =
          kind === 'rejected' ? { delivered: 14, deadLettered: 1 } : { delivered: 15, deadLettered: 0 };
        const isDone = () => relay.stats().delivered === delivered && relay.stats().deadLettered === deadLettered;
        await until(isDone, { what: 'all are settled' });
        const order = arrivals(events.received, ids);
        expect(order).toEqual(sorted(order));
      })(),
  );

  test(
    'the rest of a run waits with an event that failed as in an outage, when there is none',
    withScenario(async (scenario) => {
      const events = new ScriptedPublisher({ batchSizeMax: 10, batchesInFlightMax: 2, keyRuns: true });
      events.tookMs = 20;
      let hasFailed = false;
      events.outcomeOf = ({ key }) => {
        if (key !== 'K' || hasFailed) return ok;
        hasFailed = true;
        return { kind: 'unavailable', reason: 'no leader' };
      };
      const others = (name: string) =>
        Array.from({ length: 5 }, (_, n) => ({ aggregateId: `${name}${n}`, type: 'topic' }));
      const ids = await scenario.emit([...others('before'), ...line(10, 'K'), ...others('behind')]);
      const relay = await scenario.relay('r', { handlers: {}, destinations: { events }, route: byType });
      await until(() => relay.stats().delivered === 20, { what: 'all have arrived' });
      const order = arrivals(events.received, ids.slice(5, 15));
      expect(order).toEqual(sorted(order));
    }),
  );

  test(
    'an event that waits in the common queue when its topic is set apart is not passed',
    withScenario(async (scenario) => {
      const events = new ScriptedPublisher({ batchSizeMax: 6, batchesInFlightMax: 1, keyRuns: true });
      events.tookMs = 300; // A topic is set apart when it makes a batch slow and fails.
      events.outcomeOf = ({ key }) => (key === 'J' ? { kind: 'failed', reason: 'no leader' } : ok);
      const ids = await scenario.emit([...line(1, 'J', 'A'), ...line(5, 'K', 'B'), ...line(7, 'K', 'A')]);
      const relay = await scenario.relay('r', { handlers: {}, destinations: { events }, route: byType });
      await until(() => relay.stats().delivered === 12, { what: 'all of the key have arrived' });
      const order = arrivals(events.received, ids);
      expect(order).toEqual(sorted(order));
    }),
  );

  test(
    'keeps the order of every key under random failures, with two relays and several topics',
    withScenario(async (scenario) => {
      const random = seededRandom();
      const received: Message[] = [];
      let failuresLeft = 60;
      const failure = (): PublishOutcome | undefined => {
        if (failuresLeft === 0 || random.next() > 0.08) return undefined;
        failuresLeft--;
        return { kind: random.next() < 0.5 ? 'failed' : 'unavailable', reason: 'as scripted' };
      };
      const publisher = () => {
        const events = new ScriptedPublisher({ batchSizeMax: 8, batchesInFlightMax: 2, keyRuns: true });
        events.publish = async (batch) => {
          // Some batches are so slow that what fails in them is set apart.
          await sleep(failuresLeft > 0 && random.next() < 0.1 ? 260 : random.next() * 10);
          const failed = new Set<string | null>();
          return batch.map((message) => {
            if (failed.has(message.key)) return { kind: 'released', reason: 'not sent' };
            const outcome = failure();
            if (outcome === undefined) received.push(message);
            else failed.add(message.key);
            return outcome ?? ok;
          });
        };
        return { publisher: events, probeDelayMs: 50, probeDelayMsMax: 100 };
      };
      const [keys, count] = [10, 600];
      const emitted = Array.from({ length: count }, () => ({
        aggregateId: `k${Math.floor(random.next() * keys)}`,
        type: `t${Math.floor(random.next() * 3)}`,
      }));
      const ids = await scenario.emit(emitted);
      const options = { handlers: {}, pollIntervalMs: 50, retry: { delaysMs: Array.from({ length: 80 }, () => 50) } };
      const relays = await Promise.all(
        ['r1', 'r2'].map((name) =>
          scenario.relay(name, { ...options, destinations: { events: publisher() }, route: byType }),
        ),
      );
      const delivered = () => relays.reduce((sum, relay) => sum + relay.stats().delivered, 0);
      await until(() => delivered() >= count, { what: 'all have arrived', timeoutMs: 30_000 });
      const order = arrivals(received, ids);
      for (let key = 0; key < keys; key++) {
        const ofKey = order.filter((index) => emitted[index]?.aggregateId === `k${key}`);
        expect(ofKey, `k${key}, seed ${random.seed}`).toEqual(sorted(ofKey));
      }
    }),
  );
});
