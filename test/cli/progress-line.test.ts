import { expect, test } from 'vitest';
import { progressLine } from '../../src/cli/progress-line.ts';

const state = { text: '5,200 of 10,000 dead letters discarded', elapsedMs: 3_000, stopping: false };

test('has a bar, the time and what is left of it', () => {
  expect(progressLine({ ...state, share: 0.52 }, 120)).toBe(
    '██████████░░░░░░░░░░  52 %  5,200 of 10,000 dead letters discarded (3 s, about 2 s left)',
  );
  expect(progressLine({ ...state, share: 1 }, 120)).toBe(
    '████████████████████ 100 %  5,200 of 10,000 dead letters discarded (3 s)',
  );
});

test('promises no end before it can know it', () => {
  expect(progressLine({ ...state, share: 0.01 }, 120)).not.toContain('left');
  expect(progressLine({ ...state, share: 0.5, elapsedMs: 500 }, 120)).not.toContain('left');
});

test('has no bar without a share, and on a narrow terminal', () => {
  expect(progressLine(state, 120)).toBe('5,200 of 10,000 dead letters discarded (3 s)');
  expect(progressLine({ ...state, share: 0.5 }, 60)).toMatch(/^5,200 of/);
});

test('a share beyond its bounds is drawn as full or empty', () => {
  expect(progressLine({ ...state, share: 1.5 }, 120)).toMatch(/^█{20} 100 %/);
  expect(progressLine({ ...state, share: -1 }, 120)).toMatch(/^░{20} {3}0 %/);
});

test.each([20, 40, 72, 80, 200])('never wraps on %i columns', (columns) => {
  const line = progressLine({ ...state, share: 0.3, stopping: true }, columns);
  expect(line.length).toBeLessThan(columns);
});
