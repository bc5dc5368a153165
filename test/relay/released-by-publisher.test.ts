import { describe, expect, test } from 'vitest';
import type { PublishOutcome } from '../../src/publishers/publisher.ts';
import { withScenario } from '../support/relay-scenario.ts';
import { ScriptedPublisher } from '../support/scripted-publisher.ts';
import { until } from '../support/wait.ts';

describe('an event that a publisher released', () => {
  test(
    'is sent again without having lost an attempt',
    withScenario(async (scenario) => {
      const publisher = new ScriptedPublisher();
      const calls = new Map<string, number>();
      publisher.outcomeOf = ({ topic, eventId }): PublishOutcome => {
        const call = (calls.get(eventId) ?? 0) + 1;
        calls.set(eventId, call);
        if (topic === 'refused') return { kind: 'rejected', reason: 'invalid' };
        return call > 5 ? { kind: 'delivered' } : { kind: 'released', reason: 'others were refused' };
      };
      const relay = await scenario.relay('r', {
        handlers: {},
        // A single attempt: the first that counts would be the last.
        retry: { delaysMs: [] },
        destinations: { events: publisher },
        route: ({ type }) => ({ to: 'events', topic: type }),
      });
      await scenario.emit([
        { aggregateId: '1', type: 'refused' },
        ...Array.from({ length: 20 }, (_, index) => ({ aggregateId: `a${index}`, type: 'fine' })),
      ]);
      await until(() => publisher.received.length === 20, { what: 'all others have arrived' });
      await until(() => relay.stats().delivered === 20, { what: 'all others are settled' });
      expect(relay.stats()).toMatchObject({ delivered: 20, failed: 0, deadLettered: 1 });
      const failures = await scenario.db.query('select count(*)::integer as n from postcommit.outbox_failures');
      expect(failures).toEqual([{ n: 1 }]);
    }),
  );

  test(
    'comes again a second later if its whole batch was released',
    withScenario(async (scenario) => {
      const publisher = new ScriptedPublisher();
      const calledAt: number[] = [];
      publisher.publish = async (batch) => {
        calledAt.push(performance.now());
        return batch.map(() => ({ kind: 'released', reason: 'not now' }));
      };
      await scenario.emit([{ aggregateId: '1' }]);
      await scenario.relay('r', { handlers: {}, pollIntervalMs: 50, destinations: { events: publisher } });
      await until(() => calledAt.length === 3, { what: 'it was sent three times' });
      expect((calledAt[2] as number) - (calledAt[0] as number)).toBeGreaterThan(1_800);
    }),
  );
});
