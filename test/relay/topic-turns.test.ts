import { expect, test } from 'vitest';
import { withScenario } from '../support/relay-scenario.ts';
import { ScriptedPublisher } from '../support/scripted-publisher.ts';
import { until } from '../support/wait.ts';

test(
  'a topic with a queue of its own gets its turn although the others have a backlog, with one batch in flight',
  withScenario(async (scenario) => {
    const events = new ScriptedPublisher({ batchSizeMax: 10, batchesInFlightMax: 1, keyRuns: true });
    events.tookMs = 10;
    let isBad = true;
    events.outcomeOf = ({ topic }) =>
      topic === 'bad' && isBad ? { kind: 'unavailable', reason: 'no leader' } : { kind: 'delivered' };
    await scenario.emit([
      { aggregateId: 'bad', type: 'bad' },
      ...Array.from({ length: 3_000 }, (_, n) => ({ aggregateId: `good${n}`, type: 'good' })),
    ]);
    const publish = events.publish.bind(events);
    events.publish = async (batch, signal) => {
      const outcomes = await publish(batch, signal);
      if (batch.some(({ topic }) => topic === 'bad')) isBad = false; // Only its first try fails.
      return outcomes;
    };
    const relay = await scenario.relay('r', {
      handlers: {},
      pollIntervalMs: 50,
      destinations: { events },
      route: ({ type }) => ({ to: 'events', topic: type }),
    });
    await until(() => relay.stats().delivered === 3_001, { what: 'all have arrived', timeoutMs: 30_000 });
    // It failed in the first batch and waits on the shelf for a second at most.
    expect(events.received.findIndex(({ topic }) => topic === 'bad')).toBeLessThan(2_000);
  }),
);
