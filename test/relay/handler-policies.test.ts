import { describe, expect, test } from 'vitest';
import type { DeliveredEvent, Handlers } from '../../src/index.ts';
import { withScenario } from '../support/relay-scenario.ts';
import { until } from '../support/wait.ts';

const hang = () => new Promise<never>(() => {});
const broken = () => {
  throw new Error('not today');
};

describe('the time limit of a handler', () => {
  test(
    'is its own, shorter or longer than that of the relay',
    withScenario(async (scenario) => {
      let finish = () => {};
      const relay = await scenario.relay('one', {
        deliverTimeoutMs: 400,
        retry: { delaysMs: [] },
        handlers: {
          short: { hang: { handle: hang, timeoutMs: 50 } },
          usual: { hang },
          long: { report: { handle: () => new Promise<void>((resolve) => (finish = resolve)), timeoutMs: 60_000 } },
        },
      });
      await scenario.emit(['long', 'short', 'usual'].map((type) => ({ type, aggregateId: type })));
      await until(() => relay.stats().deadLettered === 2, { what: 'those that hang have timed out' });
      const failures = await scenario.db.query(
        `select l.event_type as type, f.code, f.error from postcommit.outbox_failures f
           join postcommit.outbox_events l using (seq) order by 1`,
      );
      const code = 'POSTCOMMIT_E_DELIVER_TIMEOUT';
      expect(failures).toEqual([
        { type: 'short', code, error: expect.stringContaining('50 ms') },
        { type: 'usual', code, error: expect.stringContaining('400 ms') },
      ]);
      finish();
      await until(() => relay.stats().delivered === 1, { what: 'the long one is delivered' });
    }),
  );
});

describe('the retry policy of a handler', () => {
  test(
    'decides for its events only',
    withScenario(async (scenario) => {
      const relay = await scenario.relay('one', {
        retry: { delaysMs: [0, 0] },
        handlers: {
          never: { call: { handle: broken, retry: { delaysMs: [] } } },
          usual: { call: { handle: broken } },
          often: { call: { handle: broken, retry: { baseMs: 0, attemptsMax: 5 } } },
        },
      });
      await scenario.emit(['never', 'usual', 'often'].map((type) => ({ type, aggregateId: type })));
      await until(() => relay.stats().deadLettered === 3, { what: 'all are dead letters' });
      const letters = await scenario.db.query(
        `select l.event_type as type, d.reason, d.attempts from postcommit.outbox_dead_letters d
           join postcommit.outbox_events l using (seq) order by 1`,
      );
      expect(letters).toEqual([
        { type: 'never', reason: 'exhausted', attempts: 1 },
        { type: 'often', reason: 'exhausted', attempts: 5 },
        { type: 'usual', reason: 'exhausted', attempts: 3 },
      ]);
    }),
  );

  test(
    'with several handlers of an event, the one that has used up its attempts makes it a dead letter',
    withScenario(async (scenario) => {
      const relay = await scenario.relay('one', {
        retry: { delaysMs: [0, 0, 0, 0] },
        handlers: {
          scripted: {
            patient: broken,
            strict: { handle: broken, retry: { delaysMs: [0] } },
            // It has no attempts left either, but it does not fail.
            content: { handle: () => {}, retry: { delaysMs: [] } },
          },
        },
      });
      await scenario.emit([{ aggregateId: 'a' }]);
      await until(() => relay.stats().deadLettered === 1, { what: 'it is a dead letter' });
      const [letter] = await scenario.db.query('select attempts, done, owed from postcommit.outbox_dead_letters');
      expect(letter.attempts).toBe(2);
      expect(letter.done).toEqual(['content']);
      expect(letter.owed.toSorted()).toEqual(['scripted:patient', 'scripted:strict']);
    }),
  );
});

test('payload types of handlers are checked, with and without a policy', () => {
  interface Order {
    total: number;
  }
  const handlers: Handlers = {
    'order.paid': {
      plain: (event: DeliveredEvent<Order>) => event.payload.total,
      withPolicy: { handle: (event: DeliveredEvent<Order>, { signal }) => [event.payload.total, signal], timeoutMs: 5 },
      inferred: { handle: async (event, ctx) => `${event.id} ${ctx.attempt}`, retry: { attemptsMax: 3 } },
      // @ts-expect-error -- a policy has a handler
      without: { timeoutMs: 5 },
      // @ts-expect-error -- there is no such option
      misspelt: { handle: () => {}, timeout: 5 },
      // @ts-expect-error -- the payload has no such field
      wrong: { handle: (event: DeliveredEvent<Order>) => event.payload.amount },
    },
  };
  expect(Object.keys(handlers)).toEqual(['order.paid']);
});
