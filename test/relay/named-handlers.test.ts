import { describe, expect, test } from 'vitest';
import { withScenario } from '../support/relay-scenario.ts';
import { nextEvent } from '../support/wait.ts';

describe('several handlers of one type', () => {
  test(
    'one fails: only that one is called again',
    withScenario(async (scenario) => {
      const calls: string[] = [];
      await scenario.emitLine('a', 2);
      await scenario.relay('one', {
        retry: { delaysMs: [0, 0, 0] },
        handlers: {
          scripted: {
            mail: (event) => void calls.push(`mail ${event.seq}`),
            index: (event, ctx) => {
              calls.push(`index ${event.seq}.${ctx.attempt}`);
              if (event.seq === '1' && ctx.attempt < 3) throw new Error('index is down');
            },
            audit: async (event) => void calls.push(`audit ${event.seq}`),
          },
        },
      });
      await scenario.drained();
      expect(calls).toEqual([
        ...['mail 1', 'index 1.1', 'audit 1', 'index 1.2', 'index 1.3'],
        ...['mail 2', 'index 2.1', 'audit 2'],
      ]);
      const rows = await scenario.db.query(
        'select attempts, targets from postcommit.outbox_deliveries order by attempts desc',
      );
      expect(rows.map(({ attempts, targets }) => [attempts, [...targets].sort()])).toEqual([
        [3, ['audit', 'index', 'mail']],
        [1, ['audit', 'index', 'mail']],
      ]);
    }),
  );

  test(
    'what is done stays done across a restart of the relay, and a handler added later gets later events only',
    withScenario(async (scenario) => {
      const calls: string[] = [];
      await scenario.emit([{ aggregateId: 'a' }]);
      const broken = () => {
        throw new Error('not yet');
      };
      const before = await scenario.relay('before', {
        retry: { delaysMs: Array(100).fill(30) },
        handlers: { scripted: { mail: () => void calls.push('mail'), index: broken } },
      });
      await nextEvent(before, 'failed');
      await before.stop();
      await scenario.emit([{ aggregateId: 'a' }]);
      await scenario.relay('after', {
        handlers: {
          scripted: {
            mail: () => void calls.push('mail again'),
            index: () => void calls.push('index'),
            search: () => void calls.push('search'),
          },
        },
      });
      await scenario.drained();
      expect(calls).toEqual(['mail', 'index', 'mail again', 'index', 'search']);
    }),
  );

  test(
    'an event that is owed to a handler waits for a relay that has it',
    withScenario(async (scenario) => {
      const calls: string[] = [];
      await scenario.emit([{ aggregateId: 'a' }]);
      const broken = () => {
        throw new Error('not yet');
      };
      const before = await scenario.relay('before', {
        retry: { delaysMs: Array(100).fill(30) },
        handlers: { scripted: { mail: () => void calls.push('mail'), old: broken } },
      });
      await nextEvent(before, 'failed');
      await before.stop();
      const mail = () => void calls.push('mail again');
      await scenario.idleRelay('after', { handlers: { scripted: { mail } } }).runOnce();
      expect(await scenario.queued()).toBe(1);
      await scenario.relay('back', { handlers: { scripted: { mail, old: () => void calls.push('old') } } });
      await scenario.drained();
      expect(calls).toEqual(['mail', 'old']);
    }),
  );
});
