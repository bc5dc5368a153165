import { describe, expect, it } from 'vitest';
import { median, ratioWithinRounds } from '../../bench/ratio.ts';
import { compare, type Measurement } from '../../bench/report.ts';

describe('median', () => {
  it('is the middle value, or the mean of the two in the middle', () => {
    expect(median([3, 1, 2])).toBe(2);
    expect(median([4, 1, 3, 2])).toBe(2.5);
    expect(() => median([])).toThrow('no median of nothing');
  });
});

// A slow minute begins in the middle of the second round, after `theirs` and before `ours`, and lasts to the end of the
// third. Otherwise both take the same time.
const ours = [1.01, 1.28, 1.29];
const theirs = [1.0, 1.02, 1.28];

describe('a ratio within rounds', () => {
  it('is not moved by a slow minute of the machine, as the ratio of medians is', () => {
    const { ratio, ratioOfMedians, rounds } = ratioWithinRounds(ours, theirs);
    expect(rounds.map((value) => value.toFixed(2))).toEqual(['1.01', '1.25', '1.01']);
    expect(ratio).toBeCloseTo(1.01, 4);
    expect(ratioOfMedians).toBeCloseTo(1.255, 3);
  });

  it('decides about the goal, and the ratio of medians does not', () => {
    const figure = (name: string, rounds: number[]): Measurement => ({
      suite: 'scale',
      name,
      value: median(rounds),
      unit: 'ms',
      rounds,
      versions: {},
      settings: {},
    });
    expect(compare(figure('ours', ours), figure('theirs', theirs), { atMost: 1.2 })).toMatchObject({
      pass: true,
      ratio: 1.01,
      ratioOfMedians: 1.28 / 1.02,
    });
    // And the other way round: slower in two of three rounds, hidden by a fast minute.
    expect(compare(figure('a', [1.3, 2.6, 1.0]), figure('b', [1.0, 2.0, 1.3]), { atMost: 1.2 })).toMatchObject({
      pass: false,
      ratio: 1.3,
      ratioOfMedians: 1,
    });
  });

  it('compares only rounds that both took part in', () => {
    expect(ratioWithinRounds([10, 20, 30], [5]).rounds).toEqual([2]);
    expect(ratioWithinRounds([10], [5, 1]).rounds).toEqual([2]);
    expect(() => ratioWithinRounds([], [1])).toThrow('no median of nothing');
  });
});
