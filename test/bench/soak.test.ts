import { describe, expect, test } from 'vitest';
import { Arrivals } from '../../bench/soak/arrivals.ts';
import { EventSource, payloadBytesMax, payloadBytesMin } from '../../bench/soak/events.ts';
import { type MemorySample, reportMemory } from '../../bench/soak/memory.ts';

const mb = 1_048_576;

/** Two minutes of samples, one a second, of which every fifth follows a garbage collection. */
function samples(heapAfterGc: (second: number) => number): MemorySample[] {
  return Array.from({ length: 120 }, (_, second) => {
    const afterGc = second % 5 === 0;
    const heapUsed = heapAfterGc(second) + (afterGc ? 0 : 40 * mb);
    return { atMs: second * 1_000, rss: heapUsed + 80 * mb, heapUsed, afterGc };
  });
}

describe('the memory report of a soak', () => {
  test('takes a level heap for bounded, whatever garbage there is in between', () => {
    const { minutes, firstThird, lastThird, isBounded } = reportMemory(samples(() => 20 * mb));
    expect({ firstThird, lastThird, isBounded }).toEqual({ firstThird: 20 * mb, lastThird: 20 * mb, isBounded: true });
    expect(minutes.map(({ heapUsed }) => heapUsed)).toEqual([
      { min: 20 * mb, median: 60 * mb, max: 60 * mb },
      { min: 20 * mb, median: 60 * mb, max: 60 * mb },
    ]);
  });

  test('finds a heap that grows', () => {
    expect(reportMemory(samples((second) => (20 + second / 2) * mb))).toMatchObject({ isBounded: false });
  });

  test('is no proof without samples', () => {
    expect(reportMemory([])).toMatchObject({ isBounded: false });
  });
});

describe('the arrivals of a soak', () => {
  function noted(...given: [aggregateId: string, n: number][]): Arrivals {
    const arrivals = new Arrivals();
    for (const [aggregateId, n] of given) arrivals.note(aggregateId, n, true);
    arrivals.compare(
      new Map([
        ['a', 3],
        ['b', 1],
      ]),
    );
    return arrivals;
  }

  test('are fine in order, also twice', () => {
    const arrivals = noted(['a', 1], ['b', 1], ['a', 2], ['a', 1], ['a', 2], ['a', 3]);
    expect(arrivals).toMatchObject({ violations: [], count: 4, duplicates: 2 });
  });

  test.each([
    ['one is passed by the next', noted(['a', 2], ['a', 1], ['a', 3], ['b', 1])],
    ['the last one is missing', noted(['a', 1], ['a', 2], ['b', 1])],
    ['an aggregate is missing', noted(['a', 1], ['a', 2], ['a', 3])],
  ])('are not when %s', (_name, arrivals) => {
    expect(arrivals.violations).toHaveLength(1);
  });
});

test('the events of a soak are the same for the same seed, of all sizes, and numbered per aggregate', () => {
  const [one, other] = [new EventSource(5), new EventSource(5)];
  const seen = new Map<string, number>();
  const sizes: number[] = [];
  for (let count = 0; count < 500; count++) {
    const event = one.next();
    expect(other.next()).toEqual(event);
    expect(event.payload.n).toBe((seen.get(event.aggregateId) ?? 0) + 1);
    expect(event.payload.padLength).toBe(event.payload.pad.length);
    seen.set(event.aggregateId, event.payload.n);
    sizes.push(event.payload.padLength);
  }
  expect(one.emitted).toEqual(seen);
  expect(Math.min(...sizes)).toBeGreaterThanOrEqual(payloadBytesMin);
  expect(Math.max(...sizes)).toBeLessThanOrEqual(payloadBytesMax + 1);
  for (const limit of [1_000, 10_000, 100_000, 1_000_000]) {
    expect(sizes.filter((size) => size < limit).length).toBeGreaterThan(50);
  }
  expect(sizes.filter((size) => size > 1_000_000).length).toBeGreaterThan(40);
});
