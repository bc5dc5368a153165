import { stripVTControlCharacters } from 'node:util';
import picocolors from 'picocolors';
import { expect, test } from 'vitest';
import { panelLines, plainLine, sparkline, wrapped } from '../../src/demo/panel.ts';
import type { FleetMember } from '../../src/demo/relay-fleet.ts';
import type { Score } from '../../src/demo/scoreboard.ts';

const relay: FleetMember = {
  name: 'relay A',
  pid: 4_194_304,
  state: 'delivering',
  token: '1',
  delivered: 1_234_567,
  failed: 0,
  deadLettered: 0,
  inFlight: 50,
  takenOver: 0,
};
const score: Score = {
  phase: 'draining',
  elapsedMs: 3_599_900,
  committed: 12_345_678,
  rolledBack: 1_234_567,
  delivered: 12_345_600,
  backlog: 78,
  retries: 1_000_000,
  deadLetters: 1,
  rate: 1_234,
  rates: Array.from({ length: 240 }, (_, n) => n),
  latencyMs: { p50: 3.14, p99: 1_500 },
  relays: [relay, { ...relay, name: 'relay B', state: 'killed' }, { ...relay, name: 'relay C', state: 'starting' }],
  milestones: Array.from({ length: 50 }, (_, n) => ({
    atMs: n * 1_000,
    text: `milestone ${n} `.repeat(9),
    mood: 'bad',
  })),
};

for (const columns of [30, 80, 96, 250]) {
  test(`on a terminal of ${columns} columns and 24 rows nothing wraps or scrolls away`, () => {
    const lines = panelLines(score, 15_000, { columns, rows: 24 }, picocolors.createColors(true));
    expect(lines.length).toBeLessThan(24);
    for (const line of lines) expect(stripVTControlCharacters(line).length).toBeLessThan(columns);
    expect(lines.join('\n')).toContain('milestone 49');
  });
}

test('without colours there are no escape sequences, and the progress can still be seen', () => {
  const lines = panelLines(
    { ...score, elapsedMs: 7_500 },
    15_000,
    { columns: 100, rows: 30 },
    picocolors.createColors(false),
  );
  expect(lines.join('')).not.toContain('\x1b');
  expect(lines[0]).toMatch(/━+─+ +7\.5 s$/);
});

test('numbers that are not there yet are no zeros', () => {
  expect(plainLine({ ...score, latencyMs: undefined })).toContain('p50 - p99 -');
});

test('a sparkline goes from nothing to the highest', () => {
  expect(sparkline([0, 50, 100], 10)).toBe('▁▅█');
  expect(sparkline([0, 0], 10)).toBe('▁▁');
  expect(sparkline([1, 2, 3, 4], 2)).toHaveLength(2);
  expect(sparkline([], 10)).toBe('');
});

test('text is broken at spaces, and inside of what has none', () => {
  expect(wrapped('to be or not', 6)).toEqual(['to be', 'or not']);
  expect(wrapped('abcdefgh', 3)).toEqual(['abc', 'def', 'gh']);
  expect(wrapped('', 3)).toEqual(['']);
});
