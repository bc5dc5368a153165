import { describe, expect, test } from 'vitest';
import type { Relay } from '../../src/index.ts';
import { withScenario } from '../support/relay-scenario.ts';
import { ScriptedPublisher } from '../support/scripted-publisher.ts';
import { until } from '../support/wait.ts';

const soon = { probeDelayMs: 50, probeDelayMsMax: 100 };
const byType = ({ type }: { type: string }) => ({ to: 'events', topic: type });
const many = (count: number, keys = count, type = 'topic') =>
  Array.from({ length: count }, (_, n) => ({ aggregateId: `${type}${n % keys}`, type }));
const delivered = (relays: readonly Relay[]) => relays.reduce((sum, relay) => sum + relay.stats().delivered, 0);
const lost = (relays: readonly Relay[]) =>
  relays.map((relay) => relay.stats()).map(({ failed, deadLettered }) => [failed, deadLettered]);

describe('an outage costs no attempt (G6)', () => {
  test(
    'when everything is down after one topic had failed by itself',
    withScenario(async (scenario) => {
      const events = new ScriptedPublisher({ batchSizeMax: 50, batchesInFlightMax: 2, keyRuns: false });
      let isBad = true;
      events.outcomeOf = ({ topic }) =>
        topic === 'bad' && isBad ? { kind: 'unavailable', reason: 'no leader' } : { kind: 'delivered' };
      const relay = await scenario.relay('r', {
        handlers: {},
        pollIntervalMs: 50,
        retry: { delaysMs: [60_000, 50] },
        destinations: { events: { publisher: events, ...soon } },
        route: byType,
      });
      await scenario.emit(many(1, 1, 'bad'));
      let others = 0;
      const failsByItself = async () => {
        await scenario.emit(many(1, 1, 'good'));
        await until(() => delivered([relay]) === others + 1, { what: 'the other topic gets its event' });
        others++;
        return relay.stats().failed > 0;
      };
      await until(failsByItself, { what: 'the topic fails by itself' });
      const told: string[] = [];
      relay.on('destinationDown', ({ error }) => told.push(error));
      const { failed } = relay.stats();
      events.mood = 'away';
      isBad = false;
      const ids = await scenario.emit(
        many(20, 20, 'bad').map((event) => ({ ...event, aggregateId: `new ${event.aggregateId}` })),
      );
      await until(() => told.length > 0, { what: 'the outage is noticed' });
      events.mood = 'up';
      const haveArrived = () => ids.every((id) => events.received.some(({ eventId }) => eventId === id));
      await until(haveArrived, { what: 'all have arrived' });
      expect(relay.stats()).toMatchObject({ failed, deadLettered: 0 });
    }),
  );

  test(
    'when the destination takes single events and goes away under load',
    withScenario(async (scenario) => {
      const events = new ScriptedPublisher({ batchSizeMax: 50, batchesInFlightMax: 2, keyRuns: true });
      let outagesLeft = 6;
      const publish = events.publish.bind(events);
      events.publish = async (batch, signal) => {
        if (outagesLeft > 0 && batch.length > 1 && events.mood === 'up') {
          outagesLeft--;
          events.mood = 'away';
          setTimeout(() => {
            events.mood = 'up';
          }, 100);
        }
        return await publish(batch, signal);
      };
      await scenario.emit(many(200));
      const relay = await scenario.relay('r', {
        handlers: {},
        pollIntervalMs: 50,
        retry: { delaysMs: [50, 50, 50] },
        destinations: { events: { publisher: events, ...soon } },
      });
      await until(() => delivered([relay]) === 200, { what: 'all have arrived', timeoutMs: 20_000 });
      expect(lost([relay])).toEqual([[0, 0]]);
    }),
  );

  test(
    'when it takes only so many events at a time',
    withScenario(async (scenario) => {
      const events = new ScriptedPublisher({ batchSizeMax: 100, batchesInFlightMax: 4, keyRuns: false });
      let [tokens, since] = [20, performance.now()];
      events.outcomeOf = () => {
        if (performance.now() - since > 50) [tokens, since] = [10, performance.now()];
        return tokens-- > 0 ? { kind: 'delivered' } : { kind: 'unavailable', reason: 'throttled' };
      };
      await scenario.emit(many(200));
      const relay = await scenario.relay('r', {
        handlers: {},
        pollIntervalMs: 50,
        destinations: { events: { publisher: events, ...soon } },
      });
      await until(() => delivered([relay]) === 200, { what: 'all have arrived', timeoutMs: 30_000 });
      expect(lost([relay])).toEqual([[0, 0]]);
    }),
  );
});
