import { describe, expect, test } from 'vitest';
import type { Handler } from '../../src/relay/deliver/handlers.ts';
import { Reject } from '../../src/relay/event/reject.ts';
import { type RelayScenario, withScenario } from '../support/relay-scenario.ts';
import { deferred, until } from '../support/wait.ts';

const soon = { retry: { delaysMs: [0, 0, 0] }, pollIntervalMs: 100 };

/** Handlers of one type that note every call, as `name attempt`, and then do what they are given to do. */
function noting(calls: string[], handlers: Record<string, (attempt: number) => unknown>): Record<string, Handler> {
  const noted = Object.entries(handlers).map(([name, work]): [string, Handler] => [
    name,
    (_event, { attempt }) => {
      calls.push(`${name} ${attempt}`);
      return work(attempt);
    },
  ]);
  return Object.fromEntries(noted);
}

const succeed = () => {};
const fail = () => Promise.reject(new Error('not today'));

async function deliveries(scenario: RelayScenario): Promise<{ targets: string[]; attempts: number }[]> {
  return scenario.db.query(
    'select array(select unnest(targets) t order by t) as targets, attempts from postcommit.outbox_deliveries',
  );
}

describe('several handlers of one type', () => {
  test(
    'that fail are all on record, each with its own error',
    withScenario(async (scenario) => {
      const handlers = { scripted: noting([], { mail: fail, stock: fail, search: succeed }) };
      await scenario.emit([{ aggregateId: 'a' }]);
      const counts = await scenario.idleRelay('one', { retry: { delaysMs: [60_000] }, handlers }).runOnce();
      expect(counts).toEqual({ delivered: 0, failed: 1, deadLettered: 0, complete: true });
      const failures = await scenario.db.query(
        'select attempt, target, code, error from postcommit.outbox_failures order by target',
      );
      const facts = { attempt: 1, code: 'POSTCOMMIT_E_HANDLER_FAILED', error: 'not today' };
      expect(failures).toEqual([
        { ...facts, target: 'mail' },
        { ...facts, target: 'stock' },
      ]);
      expect(await scenario.db.query('select done, attempts from postcommit.outbox_queue')).toEqual([
        { done: ['search'], attempts: 1 },
      ]);
    }),
  );

  test(
    'what is done when the relay stops stays done, and the rest costs no attempt',
    withScenario(async (scenario) => {
      const calls: string[] = [];
      const hang = () => new Promise(() => {});
      const first = { scripted: noting(calls, { mail: succeed, stock: hang }) };
      const relay = await scenario.relay('first', { ...soon, stopTimeoutMs: 0, handlers: first });
      await scenario.emit([{ aggregateId: 'a' }]);
      await until(() => calls.length === 2, { what: 'both were called' });
      await relay.stop();
      const second = { scripted: noting(calls, { mail: succeed, stock: succeed }) };
      await scenario.relay('second', { ...soon, handlers: second });
      await scenario.drained();
      expect(calls).toEqual(['mail 1', 'stock 1', 'stock 1']);
      expect(await deliveries(scenario)).toEqual([{ targets: ['mail', 'stock'], attempts: 1 }]);
    }),
  );

  test(
    'when one rejects, the dead letter waits for the others, shows which targets have the event, and why it is dead',
    withScenario(async (scenario) => {
      const calls: string[] = [];
      const reject = () => {
        throw new Reject('no such customer');
      };
      const late = deferred();
      const handlers = { scripted: noting(calls, { stock: reject, mail: () => late.promise, search: fail }) };
      const relay = await scenario.relay('one', { ...soon, handlers });
      await scenario.emit([{ aggregateId: 'a' }]);
      await until(() => calls.length === 3, { what: 'all were called' });
      expect(relay.stats()).toMatchObject({ deadLettered: 0, inFlight: 1 });
      late.resolve();
      await until(() => relay.stats().deadLettered === 1, { what: 'it is dead' });
      const [letter] = await scenario.db.query(
        'select reason, attempts, done, error from postcommit.outbox_dead_letters',
      );
      // Not the error of the one that only failed.
      expect(letter).toEqual({ reason: 'rejected', attempts: 1, done: ['mail'], error: 'Reject: no such customer' });
      expect(calls).toEqual(['stock 1', 'mail 1', 'search 1']);
    }),
  );

  test(
    'cannot change the event under each other',
    withScenario(async (scenario) => {
      const seen: unknown[] = [];
      const handler: Handler = (event, { attempt }) => {
        seen.push(structuredClone(event.payload), structuredClone(event.headers));
        event.payload.total = 0;
        (event.headers as Record<string, string>).changed = 'yes';
        if (attempt === 1) throw new Error('once more');
      };
      await scenario.relay('one', { ...soon, handlers: { scripted: { mail: handler, stock: handler } } });
      await scenario.emit([{ aggregateId: 'a', payload: { total: 9 }, headers: { tenant: 't1' } }]);
      await scenario.drained();
      expect(seen).toEqual(
        Array(4)
          .fill([{ total: 9 }, { tenant: 't1' }])
          .flat(),
      );
    }),
  );

  test(
    'get the same idempotency key at every attempt, each its own',
    withScenario(async (scenario) => {
      const keys: string[] = [];
      const handler: Handler = (_event, { attempt, idempotencyKey }) => {
        keys.push(idempotencyKey);
        if (attempt < 3) throw new Error('once more');
      };
      await scenario.relay('one', { ...soon, handlers: { scripted: { mail: handler, stock: handler } } });
      const [id] = await scenario.emit([{ aggregateId: 'a' }]);
      await scenario.drained();
      expect(keys).toEqual(
        Array(3)
          .fill([`${id}:mail`, `${id}:stock`])
          .flat(),
      );
    }),
  );
});
