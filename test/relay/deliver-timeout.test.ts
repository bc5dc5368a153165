import { describe, expect, test } from 'vitest';
import type { Handler, HandlerContext } from '../../src/relay/deliver/handlers.ts';
import { type RelayScenario, withScenario } from '../support/relay-scenario.ts';
import { deferred, until } from '../support/wait.ts';

const options = { deliverTimeoutMs: 300, retry: { delaysMs: [50] }, pollIntervalMs: 100 };
const hang = () => new Promise<never>(() => {});

async function failures(
  scenario: RelayScenario,
): Promise<{ seq: string; attempt: number; target: string; code: string }[]> {
  return scenario.db.query(
    'select seq::text, attempt, target, code from postcommit.outbox_failures order by failed_at, seq',
  );
}

describe('a handler that never settles', () => {
  test(
    'fails after deliverTimeoutMs with its signal aborted, and the event becomes a dead letter in the end',
    withScenario(async (scenario) => {
      const reasons: unknown[] = [];
      const handler: Handler = (_event, { signal }) => {
        signal.addEventListener('abort', () => reasons.push(signal.reason));
        return hang();
      };
      const relay = await scenario.relay('one', { ...options, handlers: { scripted: { handler } } });
      await scenario.emit([{ aggregateId: 'a' }]);
      await until(() => relay.stats().deadLettered === 1, { what: 'it is dead' });
      const code = 'POSTCOMMIT_E_DELIVER_TIMEOUT';
      expect(reasons).toEqual([1, 2].map(() => expect.objectContaining({ name: 'PostcommitError', code })));
      expect(await failures(scenario)).toEqual(
        [1, 2].map((attempt) => ({ seq: '1', attempt, target: 'handler', code })),
      );
      const [letter] = await scenario.db.query('select reason, attempts, error from postcommit.outbox_dead_letters');
      expect(letter).toEqual({ reason: 'exhausted', attempts: 2, error: expect.stringContaining('deliverTimeoutMs') });
      expect(relay.stats()).toMatchObject({ inFlight: 0, waiting: 0 });
    }),
  );

  test(
    'holds up neither other events nor their retries, even when all slots are taken by its like',
    withScenario(async (scenario) => {
      const handlers = {
        hanging: { hang },
        scripted: {
          flaky: ((_event, { attempt }) => {
            if (attempt === 1) throw new Error('first');
          }) as Handler,
        },
      };
      const relay = await scenario.relay('one', { ...options, inFlightMax: 2, handlers });
      await scenario.emit([
        ...['h1', 'h2', 'h3', 'h4'].map((aggregateId) => ({ type: 'hanging', aggregateId })),
        ...Array.from({ length: 20 }, (_, n) => ({ aggregateId: `a${n % 5}` })),
      ]);
      await until(() => relay.stats().deadLettered === 4, { what: 'those that hang were given up' });
      await scenario.drained();
      await until(() => relay.stats().delivered === 20, { what: 'the relay knows that all others were delivered' });
      expect(relay.stats()).toMatchObject({ delivered: 20, deadLettered: 4, inFlight: 0 });
    }),
  );

  test(
    'costs its event an attempt, and the other handlers of that event nothing',
    withScenario(async (scenario) => {
      const calls: string[] = [];
      const handlers = {
        scripted: {
          quick: (() => void calls.push('quick')) as Handler,
          hanging: ((_event, { attempt }) => {
            calls.push(`hanging ${attempt}`);
            return attempt === 1 ? hang() : undefined;
          }) as Handler,
        },
      };
      await scenario.relay('one', { ...options, handlers });
      await scenario.emit([{ aggregateId: 'a' }]);
      await scenario.drained();
      expect(calls).toEqual(['quick', 'hanging 1', 'hanging 2']);
      expect(await failures(scenario)).toMatchObject([{ attempt: 1, target: 'hanging' }]);
    }),
  );
});

describe('a handler that extends its time limit', () => {
  /** Resolves after this time on the clock that judges the limit. */
  const work = (ms: number) => {
    const doneAt = performance.now() + ms;
    return until(() => performance.now() >= doneAt, { what: `${ms} ms of work are done` });
  };

  test(
    'has at least that long from the call, and no less than before',
    withScenario(async (scenario) => {
      const handler: Handler = async (_event, ctx) => {
        ctx.extendTimeout(10_000);
        ctx.extendTimeout(1); // Shortens nothing.
        await work(3 * options.deliverTimeoutMs);
        ctx.signal.throwIfAborted();
      };
      const relay = await scenario.relay('one', {
        ...options,
        retry: { delaysMs: [] },
        handlers: { scripted: { handler } },
      });
      await scenario.emit([{ aggregateId: 'a' }]);
      await until(() => relay.stats().delivered + relay.stats().deadLettered === 1, { what: 'it ended' });
      expect(await failures(scenario)).toEqual([]);
      expect(relay.stats()).toMatchObject({ delivered: 1, fenced: 0 });
    }),
  );

  test(
    'fails when that is over, too, and a call after the end changes nothing',
    withScenario(async (scenario) => {
      const late = deferred<HandlerContext>();
      const handler: Handler = (_event, ctx) => {
        ctx.extendTimeout(600);
        late.resolve(ctx);
        return hang();
      };
      const relay = await scenario.relay('one', {
        ...options,
        retry: { delaysMs: [] },
        handlers: { scripted: { handler } },
      });
      await scenario.emit([{ aggregateId: 'a' }]);
      await until(() => relay.stats().deadLettered === 1, { what: 'it is dead' });
      const [letter] = await scenario.db.query('select error from postcommit.outbox_dead_letters');
      expect(letter.error).toMatch(/It is 300 ms, and the handler extended it to 6\d\d ms\.$/);
      const ctx = await late.promise;
      ctx.extendTimeout(1_000);
      expect(ctx.signal.aborted).toBe(true);
    }),
  );

  test.each([Number.NaN, 0, -1, 86_400_001, Number.POSITIVE_INFINITY, '1000' as never, undefined as never])(
    'by %s gets an error with a code, and its limit stays',
    (ms) =>
      withScenario(async (scenario) => {
        const thrown = deferred<unknown>();
        const handler: Handler = (_event, ctx) => {
          try {
            ctx.extendTimeout(ms);
          } catch (error) {
            thrown.resolve(error);
          }
        };
        const relay = await scenario.relay('one', { ...options, handlers: { scripted: { handler } } });
        await scenario.emit([{ aggregateId: 'a' }]);
        expect(await thrown.promise).toMatchObject({ name: 'PostcommitError', code: 'POSTCOMMIT_E_BAD_ARGUMENT' });
        await until(() => relay.stats().delivered === 1, { what: 'it is delivered' });
      })(),
  );
});

describe('a handler that settles too late', () => {
  test.each(['succeeds', 'fails'])('and %s: that changes nothing any more', (end) =>
    withScenario(async (scenario) => {
      const late = deferred();
      const attempts: number[] = [];
      const handler: Handler = ({ seq }, { attempt }) => {
        attempts.push(attempt);
        return seq === '1' && attempt === 1 ? late.promise : undefined;
      };
      const relay = await scenario.relay('one', { ...options, handlers: { scripted: { handler } } });
      await scenario.emit([{ aggregateId: 'a' }]);
      await scenario.drained();
      if (end === 'succeeds') late.resolve();
      else late.reject(new Error('late'));
      await scenario.emit([{ aggregateId: 'b' }]);
      await until(() => relay.stats().delivered === 2, { what: 'the next event is delivered' });
      expect(attempts).toEqual([1, 2, 1]);
      expect(await failures(scenario)).toMatchObject([{ seq: '1', attempt: 1 }]);
      expect(relay.stats()).toMatchObject({ delivered: 2, failed: 1, inFlight: 0, fenced: 0 });
    })(),
  );

  test(
    'finds its signal aborted, also when it looks for the first time',
    withScenario(async (scenario) => {
      const proceed = deferred();
      const looked = deferred<{ aborted: boolean; code: unknown }>();
      const handler: Handler = async (_event, ctx) => {
        if (ctx.attempt > 1) return;
        await proceed.promise;
        looked.resolve({ aborted: ctx.signal.aborted, code: ctx.signal.reason?.code });
      };
      await scenario.relay('one', { ...options, handlers: { scripted: { handler } } });
      await scenario.emit([{ aggregateId: 'a' }]);
      await scenario.drained();
      proceed.resolve();
      expect(await looked.promise).toEqual({ aborted: true, code: 'POSTCOMMIT_E_DELIVER_TIMEOUT' });
    }),
  );

  test(
    'keeps its event from being stolen for as long as deliverTimeoutMs allows, however short the lease',
    withScenario(async (scenario) => {
      const limits = { leaseMs: 400, pollIntervalMs: 50, retry: { delaysMs: [] } };
      const workMs = 1_500;
      await scenario.emit([{ aggregateId: 'a', script: { workMs } }]);
      const relays = await Promise.all(['one', 'two'].map((name) => scenario.relay(name, limits)));
      await scenario.drained();
      expect(scenario.journal.read().map(({ phase }) => phase)).toEqual(['begin', 'end']);
      for (const relay of relays) expect(relay.stats()).toMatchObject({ takenOver: 0, fenced: 0 });
    }),
  );
});
