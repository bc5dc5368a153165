import { describe, expect, test } from 'vitest';
import type { BatchHandler, DeliveredEvent, Handler, Handlers } from '../../src/index.ts';
import { Reject } from '../../src/index.ts';
import { resolveHandlers } from '../../src/relay/deliver/handler-options.ts';
import { defaultRetry } from '../../src/relay/event/retry-policy.ts';
import { type RelayScenario, withScenario } from '../support/relay-scenario.ts';
import { deferred, until } from '../support/wait.ts';

const things = (count: number, aggregates = count) =>
  Array.from({ length: count }, (_, n) => ({ aggregateId: `a${n % aggregates}` }));

const seqsOf = (events: readonly DeliveredEvent[]) => events.map(({ seq }) => seq);

const letters = (scenario: RelayScenario) =>
  scenario.db.query('select seq::text, reason, attempts, error from postcommit.outbox_dead_letters order by seq');

describe('a batch handler', () => {
  test(
    'gets as many events as it wants at once, in one slot of the relay',
    withScenario(async (scenario) => {
      const sizes: number[] = [];
      const handlers = {
        scripted: {
          bulk: {
            handleBatch: (events) => void sizes.push(events.length),
            batchSizeMax: 10,
            batchWaitMs: 1_000,
          } as BatchHandler,
        },
      };
      await scenario.emit(things(25));
      const relay = await scenario.relay('one', { inFlightMax: 1, handlers });
      await scenario.drained();
      await until(() => relay.stats().delivered === 25, { what: 'the relay knows that all are delivered' });
      expect(sizes).toEqual([10, 10, 5]);
      expect(relay.stats()).toMatchObject({ failed: 0, inFlight: 0, waiting: 0 });
    }),
  );

  test(
    'gathers without a slot: other handlers do not wait for its batch',
    withScenario(async (scenario) => {
      const bulk: BatchHandler = { handleBatch: () => {}, batchSizeMax: 100, batchWaitMs: 60_000 };
      const handlers = { scripted: { bulk }, mail: { send: () => {} } };
      const relay = await scenario.relay('one', { inFlightMax: 2, handlers });
      await scenario.emit([...things(10), { type: 'mail', aggregateId: 'm1' }, { type: 'mail', aggregateId: 'm2' }]);
      await until(() => relay.stats().delivered === 2, { what: 'the mails are sent' });
      expect(relay.stats()).toMatchObject({ inFlight: 0, waiting: 10 });
    }),
  );

  test(
    'has an outcome per event: delivered, failed and tried again alone, or rejected',
    withScenario(async (scenario) => {
      const calls: string[][] = [];
      const handleBatch: BatchHandler['handleBatch'] = async (events) => {
        calls.push(seqsOf(events));
        return events.map(({ seq }) => {
          if (seq === '2' && calls.length === 1) return { kind: 'failed', error: new Error('not now') };
          return seq === '3' ? { kind: 'rejected', error: new Error('never') } : { kind: 'delivered' };
        });
      };
      await scenario.emit(things(4));
      const relay = await scenario.relay('one', {
        retry: { delaysMs: [0] },
        handlers: { scripted: { bulk: { handleBatch, batchSizeMax: 4 } } },
      });
      await scenario.drained();
      await until(() => relay.stats().delivered === 3, { what: 'the relay knows that the rest is delivered' });
      expect(calls).toEqual([['1', '2', '3', '4'], ['2']]);
      expect(await letters(scenario)).toEqual([
        { seq: '3', reason: 'rejected', attempts: 1, error: expect.stringContaining('never') },
      ]);
      expect(relay.stats()).toMatchObject({ failed: 1, deadLettered: 1 });
    }),
  );

  test(
    'that throws fails all of its events, and only the one that makes it throw becomes a dead letter',
    withScenario(async (scenario) => {
      const handleBatch: BatchHandler['handleBatch'] = (events) => {
        if (seqsOf(events).includes('3')) throw new Reject('poison');
      };
      await scenario.emit(things(6));
      const relay = await scenario.relay('one', {
        retry: { delaysMs: [0, 0] },
        handlers: { scripted: { bulk: { handleBatch, batchSizeMax: 6 } } },
      });
      await scenario.drained();
      await until(() => relay.stats().delivered === 5, { what: 'the relay knows that the rest is delivered' });
      expect(await letters(scenario)).toMatchObject([{ seq: '3', reason: 'exhausted', attempts: 3 }]);
    }),
  );

  test.each<[string, unknown, string]>([
    ['too few outcomes', [{ kind: 'delivered' }], '1 outcomes for 2 events'],
    ['something else than a list', 'ok', 'type string'],
    ['outcomes of an unknown kind', [{ kind: 'done' }, undefined], 'has the kind'],
  ])('that returns %s has failed, with a code', (_name, returned, message) =>
    withScenario(async (scenario) => {
      const handleBatch = (() => returned) as BatchHandler['handleBatch'];
      await scenario.emit(things(2));
      const relay = await scenario.relay('one', {
        retry: { delaysMs: [] },
        handlers: { scripted: { bulk: { handleBatch, batchSizeMax: 2 } } },
      });
      await until(() => relay.stats().deadLettered === 2, { what: 'both are dead letters' });
      const failures = await scenario.db.query('select code, error from postcommit.outbox_failures');
      const expected = { code: 'POSTCOMMIT_E_BAD_OUTCOMES', error: expect.stringContaining(message) };
      expect(failures).toEqual([expected, expected]);
    })(),
  );

  test(
    'keeps the order of each aggregate: never two events of one in a batch, nor one that passes a failed one',
    withScenario(async (scenario) => {
      const done = new Map<string, string[]>();
      const handleBatch: BatchHandler['handleBatch'] = async (events) => {
        const keys = events.map(({ key }) => key);
        expect(new Set(keys).size).toBe(keys.length);
        return events.map((event) => {
          const fails = Number(event.seq) % 7 === 0 && !done.get('failed')?.includes(event.seq);
          const list = fails ? 'failed' : (event.key as string);
          done.set(list, [...(done.get(list) ?? []), event.seq]);
          return fails ? { kind: 'failed', error: 'first' } : { kind: 'delivered' };
        });
      };
      await scenario.emit(things(60, 6));
      await scenario.relay('one', {
        retry: { delaysMs: [0] },
        handlers: { scripted: { bulk: { handleBatch, batchSizeMax: 4, batchWaitMs: 5, inFlightMax: 2 } } },
      });
      await scenario.drained();
      done.delete('failed');
      expect(done.size).toBe(6);
      for (const seqs of done.values()) {
        expect(seqs).toEqual(seqs.toSorted((a, b) => Number(a) - Number(b)));
        expect(seqs.length).toBe(10);
      }
    }),
  );

  test(
    'is called beside the other handlers of an event, within its time limit and its inFlightMax',
    withScenario(async (scenario) => {
      const gate = deferred();
      const sizes: number[] = [];
      const mails: string[] = [];
      const handleBatch: BatchHandler['handleBatch'] = async (events, { signal }) => {
        sizes.push(events.length);
        expect(signal.aborted).toBe(false);
        await gate.promise;
      };
      const relay = await scenario.relay('one', {
        handlers: {
          scripted: {
            bulk: { handleBatch, batchSizeMax: 2, inFlightMax: 1 },
            mail: ((event) => void mails.push(event.seq)) as Handler,
          },
        },
      });
      await scenario.emit(things(6));
      await until(() => mails.length === 6, { what: 'all mails are sent' });
      expect(sizes).toEqual([2]);
      gate.resolve();
      await scenario.drained();
      await until(() => relay.stats().delivered === 6, { what: 'the relay knows that all are delivered' });
      expect(sizes.reduce((sum, size) => sum + size)).toBe(6);
      expect(mails.length).toBe(6);
    }),
  );

  test(
    'that never settles times out, and a stopping relay releases what gathers',
    withScenario(async (scenario) => {
      const handleBatch = () => new Promise<never>(() => {});
      const hanging: BatchHandler = { handleBatch, batchSizeMax: 3, timeoutMs: 100, retry: { delaysMs: [] } };
      const gathering: BatchHandler = { handleBatch, batchSizeMax: 100, batchWaitMs: 60_000 };
      const relay = await scenario.relay('one', { handlers: { scripted: { hanging }, other: { gathering } } });
      await scenario.emit([...things(3), { type: 'other', aggregateId: 'o' }]);
      await until(() => relay.stats().deadLettered === 3, { what: 'the batch has timed out' });
      const codes = await scenario.db.query('select distinct code from postcommit.outbox_failures');
      expect(codes).toEqual([{ code: 'POSTCOMMIT_E_DELIVER_TIMEOUT' }]);
      await relay.stop();
      expect(relay.stats()).toMatchObject({ released: 1, inFlight: 0, waiting: 0 });
      const [row] = await scenario.db.query('select attempts, claimed_by from postcommit.outbox_queue');
      expect(row).toEqual({ attempts: 0, claimed_by: null });
    }),
  );
});

test.each<[string, object]>([
  ['handle and handleBatch', { handle: () => {}, handleBatch: () => {} }],
  ['handleBatch that is not a function', { handleBatch: [] }],
  ['batchSizeMax without handleBatch', { handle: () => {}, batchSizeMax: 5 }],
  ['batchWaitMs without handleBatch', { handle: () => {}, batchWaitMs: 5 }],
  ...[0, -1, 1.5, 10_001, Number.NaN, '5', null].map((batchSizeMax): [string, object] => [
    `batchSizeMax ${batchSizeMax}`,
    { handleBatch: () => {}, batchSizeMax },
  ]),
  ...[-1, 1.5, 60_001, Number.NaN, '5', null].map((batchWaitMs): [string, object] => [
    `batchWaitMs ${batchWaitMs}`,
    { handleBatch: () => {}, batchWaitMs },
  ]),
])('refuses %s', (_name, handler) => {
  const handlers = { 'order.paid': { bulk: handler } } as unknown as Handlers;
  expect(() => resolveHandlers(handlers, { deliverTimeoutMs: 30_000, retry: defaultRetry })).toThrow(
    expect.objectContaining({ code: 'POSTCOMMIT_E_BAD_OPTION', message: expect.stringContaining('bulk') }),
  );
});

test('payload types of batch handlers are checked', () => {
  interface Order {
    total: number;
  }
  const handlers: Handlers = {
    'order.paid': {
      typed: {
        handleBatch: (events: readonly DeliveredEvent<Order>[]) => void events.map(({ payload }) => payload.total),
      },
      inferred: {
        handleBatch: async (events, { signal }) => events.map(() => ({ kind: 'failed', error: signal.reason })),
      },
      // @ts-expect-error -- an outcome has a known kind
      wrong: { handleBatch: (events) => events.map(() => ({ kind: 'done' })) },
      // @ts-expect-error -- one of them
      both: { handle: () => {}, handleBatch: () => {} },
    },
  };
  expect(Object.keys(handlers)).toEqual(['order.paid']);
});
