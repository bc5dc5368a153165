import { describe, expect, it } from 'vitest';
import {
  compare,
  jsonLine,
  judged,
  type Measurement,
  percentile,
  printed,
  readJsonLines,
  table,
} from '../../bench/report.ts';

const measured = (name: string, value: number, more: Partial<Measurement> = {}): Measurement => ({
  suite: 'drain',
  name,
  value,
  unit: 'events/s',
  versions: { [name]: '1.0' },
  settings: { events: 10 },
  ...more,
});

describe('figures', () => {
  it('takes as a percentile a value that was measured, not exceeded by that share', () => {
    const hundred = Array.from({ length: 100 }, (_, index) => 100 - index);
    expect(percentile(hundred, 0.5)).toBe(50);
    expect(percentile(hundred, 0.95)).toBe(95);
    expect(percentile(hundred, 0.99)).toBe(99);
    expect(percentile(hundred, 1)).toBe(100);
    expect(percentile([7], 0.99)).toBe(7);
    expect(percentile([1, 1_000], 0.5)).toBe(1);
    expect(() => percentile([], 0.5)).toThrow('no percentile of nothing');
  });
});

describe('goals', () => {
  it('are to be reached', () => {
    expect(compare(measured('ours', 120), measured('theirs', 100), { atLeast: 1.2 })).toMatchObject({
      name: 'ours against theirs',
      baseline: 'theirs',
      ratio: 1.2,
      goal: 1.2,
      goalIs: 'atLeast',
      pass: true,
      versions: { ours: '1.0', theirs: '1.0' },
    });
    expect(compare(measured('ours', 119), measured('theirs', 100), { atLeast: 1.2 }).pass).toBe(false);
  });

  it('or are not to be exceeded', () => {
    expect(compare(measured('ours', 102), measured('theirs', 100), { atMost: 1.02 })).toMatchObject({ pass: true });
    expect(compare(measured('ours', 103), measured('theirs', 100), { atMost: 1.02 })).toMatchObject({
      goal: 1.02,
      goalIs: 'atMost',
      pass: false,
    });
  });

  it('judge what was measured and not what is printed', () => {
    const comparison = compare(measured('ours', 1.020_04), measured('theirs', 1), { atMost: 1.02 });
    expect(comparison.pass).toBe(false);
    expect(printed(comparison)).toMatchObject({ value: 1.02, ratio: 1.02, ratioOfMedians: 1.02, rounds: [1.02] });
  });

  it('may hold for a figure by itself', () => {
    expect(judged(measured('memory', 199), { atMost: 200 }).pass).toBe(true);
    expect(judged(measured('memory', 200.4), { atMost: 200 }).pass).toBe(false);
  });

  it('may be followed by a next one, for which nothing fails', () => {
    const comparison = compare(measured('ours', 130), measured('theirs', 100), { atLeast: 1.2, next: 1.5 });
    expect(comparison).toMatchObject({ goal: 1.2, pass: true, next: 1.5, nextPass: false });
    expect(table([comparison])).toContain('goal: at least 1.2, met, next: 1.5, not yet');
    const lower = compare(measured('ours', 80), measured('theirs', 100), { atMost: 1, next: 0.85 });
    expect(lower).toMatchObject({ pass: true, nextPass: true });
  });

  it('are not needed to compare', () => {
    const comparison = compare(measured('ours', 2), measured('theirs', 1));
    expect(comparison.ratio).toBe(2);
    expect(comparison).not.toHaveProperty('goal');
    expect(comparison).not.toHaveProperty('pass');
  });
});

describe('output', () => {
  it('has a line for each figure, with its spread and its goal', () => {
    const ours = measured('ours', 1_200, { rounds: [1_100, 1_200, 1_300], details: { startupMs: 12 } });
    const lines = table([
      ours,
      compare(ours, measured('theirs', 1_500, { rounds: [1_500, 1_500, 1_500] }), { atLeast: 1 }),
    ]).split('\n');
    expect(lines).toEqual([
      '  ours                 1,200 events/s  1,100 to 1,300, startupMs 12',
      '  ours against theirs           0.8 x  0.733 / 0.8 / 0.867, of medians 0.8, goal: at least 1, MISSED',
    ]);
    expect(table([compare(ours, ours, { atMost: 1.02 })])).toContain('goal: at most 1.02, met');
    const shared = measured('two', 5, {
      eventsByProcess: [
        [6, 4],
        [5, 5],
      ],
    });
    expect(table([shared])).toContain('events 6 + 4 | 5 + 5');
  });

  it('can be read back, and says which line cannot', () => {
    const both = [measured('a', 1), measured('b', 2)];
    expect(readJsonLines(`${both.map(jsonLine).join('\n')}\n`)).toEqual(both);
    expect(() => readJsonLines(`${jsonLine(measured('a', 1))}\n> postcommit@0.1.0 bench`)).toThrow(
      'Line 2 is no measurement: > postcommit@0.1.0 bench',
    );
    expect(() => readJsonLines('{}')).toThrow('Line 1');
  });
});
