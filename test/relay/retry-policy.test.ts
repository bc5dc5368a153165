import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { defaultRetry, resolveRetry, retryDelayMs } from '../../src/relay/event/retry-policy.ts';
import { seededRandom } from '../support/random.ts';

const delay = fc.integer({ min: 0, max: 366 * 24 * 3_600_000 });
const unit = fc.double({ min: 0, max: 1, maxExcluded: true, noNaN: true });

describe('a schedule', () => {
  test('is followed to its end, and its length is the limit', () => {
    fc.assert(
      fc.property(fc.array(delay, { maxLength: 30 }), (delaysMs) => {
        const policy = resolveRetry({ delaysMs });
        const given = Array.from({ length: delaysMs.length + 3 }, (_, n) => retryDelayMs(policy, n + 1));
        expect(given).toEqual([...delaysMs, undefined, undefined, undefined]);
      }),
    );
  });

  test('is the relay’s own copy', () => {
    const delaysMs = [1, 2];
    const policy = resolveRetry({ delaysMs });
    delaysMs.push(3);
    expect(retryDelayMs(policy, 3)).toBeUndefined();
  });
});

describe('the limit that an event was emitted with', () => {
  test('counts instead of that of the policy', () => {
    const delays = (policy: ReturnType<typeof resolveRetry>, attemptsMax: number) =>
      [1, 2, 3, 4].map((attempt) => retryDelayMs(policy, attempt, { attemptsMax, random: () => 0.5 }));
    expect(delays({ delaysMs: [10, 20] }, 1)).toEqual([undefined, undefined, undefined, undefined]);
    expect(delays({ delaysMs: [10, 20] }, 4)).toEqual([10, 20, 20, undefined]);
    expect(delays({ delaysMs: [] }, 2)).toEqual([1_000, undefined, undefined, undefined]);
    expect(delays({ baseMs: 100, capMs: 150, attemptsMax: 1 }, 4)).toEqual([50, 75, 75, undefined]);
  });
});

describe('exponential backoff', () => {
  test('takes what it leaves out from the policy it is based on', () => {
    const base = resolveRetry({ baseMs: 5, capMs: 50, attemptsMax: 7 });
    const left = { baseMs: undefined, attemptsMax: 3 } as object;
    expect(resolveRetry(left, { base })).toEqual({ baseMs: 5, capMs: 50, attemptsMax: 3 });
    expect(resolveRetry(left, { base: { delaysMs: [1] } })).toEqual({ ...defaultRetry, attemptsMax: 3 });
  });

  const policy = fc.record({ baseMs: delay, capMs: delay, attemptsMax: fc.integer({ min: 1, max: 1_000 }) });

  test('stays within its bounds and allows exactly attemptsMax attempts', () => {
    fc.assert(
      fc.property(policy, fc.integer({ min: 1, max: 1_100 }), unit, (given, attempt, random) => {
        const delayMs = retryDelayMs(resolveRetry(given) as typeof given, attempt, { random: () => random });
        if (attempt >= given.attemptsMax) {
          expect(delayMs).toBeUndefined();
          return;
        }
        expect(Number.isInteger(delayMs)).toBe(true);
        expect(delayMs).toBeGreaterThanOrEqual(0);
        expect(delayMs).toBeLessThanOrEqual(Math.min(given.capMs, given.baseMs * 2 ** Math.min(attempt - 1, 100)));
      }),
    );
  });

  test('its ceiling never sinks from one attempt to the next', () => {
    fc.assert(
      fc.property(policy, unit, (given, random) => {
        const resolved = resolveRetry(given) as typeof given;
        let last = 0;
        for (let attempt = 1; attempt < given.attemptsMax; attempt++) {
          const delayMs = retryDelayMs(resolved, attempt, { random: () => random }) ?? 0;
          expect(delayMs).toBeGreaterThanOrEqual(last);
          last = delayMs;
        }
      }),
      { numRuns: 50 },
    );
  });

  test('is spread over the whole range, so that failures of one moment do not come back in one', () => {
    const random = seededRandom(1);
    const delays = Array.from({ length: 1_000 }, () => retryDelayMs(defaultRetry, 11, { random: random.next }) ?? 0);
    const ceiling = 1_000 * 2 ** 10;
    for (let tenth = 0; tenth < 10; tenth++) {
      const within = delays.filter((delayMs) => Math.floor((delayMs / ceiling) * 10) === tenth).length;
      expect(within).toBeGreaterThan(50);
    }
  });

  test('the defaults survive an outage of a day', () => {
    const random = seededRandom(2);
    const hours = Array.from({ length: 2_000 }, () => {
      let sum = 0;
      for (let attempt = 1; ; attempt++) {
        const delayMs = retryDelayMs(defaultRetry, attempt, { random: random.next });
        if (delayMs === undefined) return sum / 3_600_000;
        sum += delayMs;
      }
    });
    const lasting = hours.filter((h) => h >= 24).length / hours.length;
    expect(lasting).toBeGreaterThan(0.999);
  });
});

test.each([
  ['a list alone', [1, 2]],
  ['a delay that is no number', { delaysMs: [1, '2'] }],
  ['a negative delay', { delaysMs: [-1] }],
  ['NaN', { delaysMs: [Number.NaN] }],
  ['an endless delay', { delaysMs: [Number.POSITIVE_INFINITY] }],
  ['too many delays', { delaysMs: Array(1_001).fill(1) }],
  ['no attempt at all', { attemptsMax: 0 }],
  ['half an attempt', { attemptsMax: 1.5 }],
  ['a negative base', { baseMs: -5 }],
  ['a cap of years', { capMs: 1e12 }],
  ['a misspelt field', { maxAttempts: 3 }],
  ['nothing', null],
])('%s is refused', (_name, policy) => {
  expect(() => resolveRetry(policy as never)).toThrow(expect.objectContaining({ code: 'POSTCOMMIT_E_BAD_OPTION' }));
});
