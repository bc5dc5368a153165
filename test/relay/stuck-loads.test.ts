import { expect, test, vi } from 'vitest';
import type { Deliverer } from '../../src/relay/deliver/deliverer.ts';
import { resolveHandlers } from '../../src/relay/deliver/handler-options.ts';
import { Planner } from '../../src/relay/deliver/planner.ts';
import { AloneQueue } from '../../src/relay/dispatch/alone-queue.ts';
import { Dispatcher, type DispatcherOptions } from '../../src/relay/dispatch/dispatcher.ts';
import { PayloadLoader } from '../../src/relay/dispatch/payload-loader.ts';
import { SuspectTrials } from '../../src/relay/dispatch/suspect-trials.ts';
import type { ClaimedEvent } from '../../src/relay/event/claimed-event.ts';
import { until } from '../support/wait.ts';

const claimed = (seq: string, more: Partial<ClaimedEvent> = {}): ClaimedEvent =>
  ({
    seq,
    key: seq,
    queue: 'default',
    attempts: 0,
    takenOver: false,
    takeovers: 0,
    done: [],
    owed: [],
    replayId: null,
    id: `id-${seq}`,
    aggregateType: 'a',
    aggregateId: seq,
    type: 't',
    schemaVersion: 1,
    orderingKey: null,
    payloadJson: undefined, // To be loaded.
    headersJson: '{}',
    createdAtMs: 0,
    shelved: [],
    ...more,
  }) as ClaimedEvent;

const common = {
  slots: new Map([['default', 10]]),
  bufferTarget: () => 100,
  decisions: { mustReturn: () => false, shelvedBefore: () => undefined, returning() {}, shelving() {} } as never,
  mayStart: () => true,
  settle: () => undefined,
} satisfies Partial<DispatcherOptions>;

test.each(['ends', 'fails'])(
  'a lease that is lost while a prime suspect is loaded stops nothing: its load %s later',
  async (how) => {
    let load: { ends: (payload: { json: string; bytes: number }) => void; fails: (error: Error) => void } | undefined;
    const payloads = new PayloadLoader({
      inFlightBytesMax: 1_000_000,
      loadBytesMax: 1_000_000,
      load: () =>
        new Promise((ends, fails) => {
          load = { ends, fails };
        }),
    });
    const delivered: string[] = [];
    const deliver: DispatcherOptions['deliver'] = (event, done) => {
      delivered.push(event.seq);
      done({ kind: 'delivered' } as never);
    };
    const planner = { plansAhead: false, plan() {}, takesSlot: () => true, runMax: () => 1 } as never;
    const trials = new SuspectTrials({
      schema: 'postcommit',
      db: { query: async () => ({ rows: [{ ours: true, is_ours: true, begin_trial: true }] }) },
      settler: { written: async () => {} },
      token: () => '1',
      payloads,
      planner,
      deliverer: { deliver } as Pick<Deliverer, 'deliver'> as Deliverer,
    });
    const deliverAlone: DispatcherOptions['deliverAlone'] = (event, done) => trials.deliver(event, done);
    const dispatcher = new Dispatcher({ ...common, planner, payloads, deliver, deliverAlone });
    dispatcher.accept([claimed('1', { takeovers: 4 })]);
    await until(() => load !== undefined, { what: 'the suspect is being loaded' });
    dispatcher.forget();
    payloads.forget();
    if (how === 'ends') load?.ends({ json: '{}', bytes: 2 });
    else load?.fails(new Error('Connection terminated'));
    dispatcher.accept([claimed('2', { payloadJson: '{}' }), claimed('3', { payloadJson: '{}' })]);
    await until(() => delivered.length === 2, { what: 'the events of the next lease are delivered' });
    expect(delivered).toEqual(['2', '3']);
    expect(dispatcher.inFlight).toBe(0);
  },
);

test('an event that turns out to owe another target once it is loaded does not take up its handler', async () => {
  const handlers = resolveHandlers({ t: { first: { handle: async () => {}, inFlightMax: 1 } } } as never, {
    deliverTimeoutMs: 1_000,
    retry: {} as never,
  });
  const destinations = new Map([['elsewhere', { runMax: 1 } as never]]);
  const planner = new Planner({ handlers, destinations, route: () => null, noHandler: 'fail' } as never);
  const delivered: string[] = [];
  const payloads = {
    load(event: ClaimedEvent, done: (failure: undefined) => void) {
      event.payloadJson = '{}';
      setImmediate(() => done(undefined));
    },
    release() {},
  } as never;
  const deliver: DispatcherOptions['deliver'] = (event, done) => {
    delivered.push(event.seq);
    done({ kind: 'delivered' } as never);
  };
  const dispatcher = new Dispatcher({ ...common, planner, payloads, deliver, deliverAlone: deliver });
  const owing = (seq: string, ...owed: string[]) => claimed(seq, { owed, done: ['elsewhere'] });
  dispatcher.accept([owing('1', 't:first', 't:of-another-relay')]);
  await until(() => delivered.length === 1, { what: 'the event with two targets is delivered' });
  dispatcher.accept([owing('2', 't:first'), owing('3', 't:first')]);
  await until(() => delivered.length === 3, { what: 'the handler gets the next events' });
});

test('a suspect waits for deliveries in flight as long as it may, whatever an earlier one waited', () => {
  let now = 0;
  const alone = new AloneQueue({ now: () => now, onOverdue() {} });
  const [first, second] = [claimed('1'), claimed('2')];
  alone.push(first);
  expect(alone.next(1)).toBeUndefined();
  expect(alone.delete(first)).toBe(true);
  now = 600_000;
  alone.push(second);
  expect(alone.next(1)).toBeUndefined();
  expect(alone.drain()).toEqual([second]);
  now = 1_200_000;
  alone.push(first);
  expect(alone.next(1)).toBeUndefined();
  alone.drain();
});

test('a suspect is not left waiting when the timer for the rest after another trial fires early', () => {
  vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout'] });
  try {
    let now = 0;
    const ends = new Map<string, () => void>();
    const deliver: DispatcherOptions['deliver'] = (event, done) => {
      ends.set(event.seq, () => done({ kind: 'delivered' } as never));
    };
    const planner = { plansAhead: false, plan() {}, takesSlot: () => true, runMax: () => 1 } as never;
    const payloads = { load() {}, release() {} } as never;
    const dispatcher = new Dispatcher({
      ...common,
      planner,
      payloads,
      deliver,
      deliverAlone: deliver,
      now: () => now,
    });
    const suspect = (seq: string) => claimed(seq, { takeovers: 4 });
    dispatcher.accept([suspect('1'), suspect('2'), claimed('3', { payloadJson: '{}' })]);
    expect([...ends.keys()]).toEqual(['1']);
    now = 100.4;
    ends.get('1')?.();
    expect([...ends.keys()]).toEqual(['1', '3']);
    now = 200.4; // The rest ends at 200.8.
    vi.advanceTimersByTime(101);
    now = 10_000;
    vi.advanceTimersByTime(9_800);
    // The delivery in flight takes longer than a suspect waits for it: the suspect goes back to the queue.
    expect({ waiting: dispatcher.waiting, inFlight: dispatcher.inFlight }).toEqual({ waiting: 0, inFlight: 1 });
  } finally {
    vi.useRealTimers();
  }
});
