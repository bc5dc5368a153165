import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { type ModelOptions, QueueModel } from './queue-model.ts';

type Step =
  | { do: 'emit'; key: string | null; queue: number }
  | { do: 'claim'; limit: number }
  | { do: 'finish'; pick: number; kind: 'delivered' | 'failed' | 'rejected' | 'released' | 'unavailable' }
  | { do: 'finishLoad'; pick: number; kind: 'delivered' | 'failed' | 'rejected' | 'released' }
  | { do: 'write' | 'confirm' | 'unshelve'; count: number }
  | { do: 'releaseExcess'; passMs: number }
  | { do: 'release'; pick: number }
  | { do: 'loseLease' };

const key = fc.option(fc.constantFrom('a', 'b', 'c'), { freq: 6 });
const kind = fc.oneof(
  { weight: 4, arbitrary: fc.constant('delivered' as const) },
  {
    weight: 1,
    arbitrary: fc.constantFrom('failed' as const, 'rejected' as const, 'released' as const, 'unavailable' as const),
  },
);
const loadKind = fc.oneof(
  { weight: 4, arbitrary: fc.constant('delivered' as const) },
  { weight: 1, arbitrary: fc.constantFrom('failed' as const, 'rejected' as const, 'released' as const) },
);
const step: fc.Arbitrary<Step> = fc.oneof(
  { weight: 8, arbitrary: fc.record({ do: fc.constant('emit' as const), key, queue: fc.nat(2) }) },
  { weight: 12, arbitrary: fc.record({ do: fc.constant('claim' as const), limit: fc.integer({ min: 1, max: 6 }) }) },
  { weight: 8, arbitrary: fc.record({ do: fc.constant('finish' as const), pick: fc.nat(9), kind }) },
  { weight: 4, arbitrary: fc.record({ do: fc.constant('finishLoad' as const), pick: fc.nat(9), kind: loadKind }) },
  {
    weight: 12,
    arbitrary: fc.record({
      do: fc.constantFrom('write' as const, 'confirm' as const, 'unshelve' as const),
      count: fc.integer({ min: 1, max: 4 }),
    }),
  },
  {
    weight: 1,
    arbitrary: fc.record({ do: fc.constant('releaseExcess' as const), passMs: fc.constantFrom(1, 150, 600) }),
  },
  { weight: 1, arbitrary: fc.record({ do: fc.constant('release' as const), pick: fc.nat(9) }) },
  { weight: 1, arbitrary: fc.record({ do: fc.constant('loseLease' as const) }) },
);
const steps = fc.array(step, { maxLength: 150, size: 'max' });
const options = fc.record({
  inFlightMax: fc.integer({ min: 1, max: 4 }),
  bufferTarget: fc.integer({ min: 2, max: 12 }),
  runMax: fc.constantFrom(1, 3),
  loadEvery: fc.constantFrom(1, 2, 3, 1_000),
  limitedMax: fc.constantFrom(undefined, 1, 2),
  queues: fc.constantFrom(1, 2, 3),
});

function play(given: readonly Step[], limits: ModelOptions): QueueModel {
  const model = new QueueModel(limits);
  for (const each of given) {
    if (each.do === 'emit') model.emit(each.key, each.queue);
    else if (each.do === 'claim') model.stepClaim(each.limit);
    else if (each.do === 'finish') model.finish(each.pick, each.kind);
    else if (each.do === 'finishLoad') model.finishLoad(each.pick, each.kind);
    else if (each.do === 'write') model.write(each.count);
    else if (each.do === 'confirm') model.confirm(each.count);
    else if (each.do === 'unshelve') model.unshelve(each.count);
    else if (each.do === 'releaseExcess') model.releaseExcess(each.passMs);
    else if (each.do === 'release') model.release(each.pick);
    else model.loseLease();
    expect(model.dispatcher.inFlight).toBeLessThanOrEqual(limits.inFlightMax * (limits.queues ?? 1));
    expect(model.dispatcher.waiting).toBeGreaterThanOrEqual(0);
  }
  return model;
}

describe('the dispatcher, whatever happens in whatever order', () => {
  test('keeps the order of each key, one at a time, and has one outcome for every event', () => {
    fc.assert(
      fc.property(steps, options, (given, limits) => {
        const model = play(given, limits);
        expect(model.violations).toEqual([]);
      }),
      { numRuns: 1_500 },
    );
  });

  test('forgets nothing: all events are delivered in the end', () => {
    fc.assert(
      fc.property(steps, options, (given, limits) => {
        const model = play(given, limits);
        expect(model.settle()).toBe(true);
        expect(model.violations).toEqual([]);
        expect(model).toMatchObject({ undelivered: 0, open: 0 });
        expect(model.dispatcher).toMatchObject({ inFlight: 0, waiting: 0 });
      }),
      { numRuns: 1_000 },
    );
  });

  test('stopped, gives everything back', () => {
    fc.assert(
      fc.property(steps, options, (given, limits) => {
        const model = play(given, limits);
        model.stop();
        expect(model.settle()).toBe(true);
        expect(model.violations).toEqual([]);
        expect(model).toMatchObject({ leased: 0, open: 0 });
        expect(model.dispatcher).toMatchObject({ inFlight: 0, waiting: 0 });
      }),
      { numRuns: 1_000 },
    );
  });

  test('lets a slow key hold a share of the buffer only', () => {
    const model = new QueueModel({ inFlightMax: 2, bufferTarget: 40 });
    for (let n = 0; n < 100; n++) model.emit('slow');
    for (let n = 0; n < 4; n++) model.stepClaim(40);
    expect(model.dispatcher).toMatchObject({ inFlight: 1, waiting: 39 });
    model.releaseExcess(50);
    expect(model.dispatcher.waiting).toBe(39);
    model.releaseExcess(51);
    expect(model.dispatcher.waiting).toBe(19);
    expect([...model.dispatcher.releaseExcess('default')]).toEqual(['slow']);
    expect(model.violations).toEqual([]);
  });

  test('a queue whose slots are taken delays no other, and a key goes on across queues', () => {
    const model = new QueueModel({ inFlightMax: 1, bufferTarget: 40, queues: 2 });
    model.emit('report', 1);
    model.emit('another report', 1);
    model.emit('report', 0);
    for (let n = 0; n < 20; n++) model.emit(`order ${n}`, 0);
    for (let n = 0; n < 24; n++) model.stepClaim(40);
    // The report is under way and stays so; the event behind it waits.
    for (let n = 0; n < 30; n++) model.finishOf('default');
    expect(model.dispatcher.of('default')).toMatchObject({ inFlight: 0, waiting: 1 });
    expect(model.dispatcher.of('q1')).toMatchObject({ inFlight: 1, waiting: 1 });
    model.finishOf('q1');
    expect(model.dispatcher.of('default')).toMatchObject({ inFlight: 1, waiting: 0 });
    expect(model.violations).toEqual([]);
  });

  test('keys whose front is slow in another queue use a part of the buffer only', () => {
    const model = new QueueModel({ inFlightMax: 50, bufferTarget: 40, queues: 2 });
    for (let n = 0; n < 50; n++) model.emit(`report ${n}`, 1);
    for (let n = 0; n < 200; n++) model.emit(`report ${n % 50}`, 0);
    for (let n = 0; n < 40; n++) model.stepClaim(40);
    expect(model.dispatcher.of('q1').inFlight).toBeGreaterThan(30);
    expect(model.dispatcher.of('default').waiting).toBeGreaterThan(0);
    model.releaseExcess(501);
    expect(model.dispatcher.of('default').waiting).toBe(0);
    expect(model.dispatcher.releaseExcess('default').size).toBeGreaterThan(30);
    expect(model.violations).toEqual([]);
  });

  test('events of a key that may be under way together start in order, also in different queues', () => {
    const model = new QueueModel({ inFlightMax: 1, bufferTarget: 40, queues: 2, runMax: 3 });
    model.emit('another', 1);
    model.emit('a', 1);
    model.emit('a', 0);
    for (let n = 0; n < 24; n++) model.stepClaim(40);
    // The slot of the first queue is taken, that of the second is free.
    expect(model.dispatcher.of('q1')).toMatchObject({ inFlight: 1, waiting: 1 });
    expect(model.dispatcher.of('default')).toMatchObject({ inFlight: 0, waiting: 1 });
    expect(model.violations).toEqual([]);
  });
});
