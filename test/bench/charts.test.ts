import { readdir, readFile } from 'node:fs/promises';
import { expect, it } from 'vitest';
import { charts } from '../../bench/charts.ts';
import { type Measurement, readJsonLines } from '../../bench/report.ts';

const root = new URL('../../', import.meta.url);
const read = (path: string) => readFile(new URL(path, root), 'utf8');

it('the committed charts are those of the committed results', async () => {
  const drawn = charts(readJsonLines(await read('bench/results.jsonl')));
  const committed = (await readdir(new URL('docs/images/', root))).filter((name) => name.startsWith('bench-'));
  expect(committed.sort()).toEqual(drawn.map(({ file }) => file).sort());
  for (const { file, svg } of drawn) expect(await read(`docs/images/${file}`), file).toBe(svg);
});

it('the page shows every chart, and the README one', async () => {
  const page = await read('docs/benchmarks.md');
  for (const { file } of charts(readJsonLines(await read('bench/results.jsonl'))))
    expect(page).toContain(`images/${file}`);
  expect(await read('README.md')).toContain('docs/images/bench-peers.svg');
});

const figure = (name: string, value: number, more: Partial<Measurement> = {}): Measurement => ({
  suite: 'latency',
  name,
  value,
  unit: 'ms',
  versions: {},
  settings: {},
  ...more,
});

it('bars are as long as their figures, in one colour for each series, and texts are escaped', () => {
  const [chart] = charts([figure('a<b, p50', 2), figure('a<b, p99', 4), figure('x, p50', 1, { baseline: 'y' })]);
  const bars = [...(chart?.svg ?? '').matchAll(/<rect class="(s\d)" x="300" y="\d+" width="(\d+)" height="14"/g)];
  expect(bars.map(([, colour, length]) => [colour, Number(length)])).toEqual([
    ['s0', 165],
    ['s1', 330],
  ]);
  expect(chart?.svg).toContain('>a&lt;b</text>');
  expect(chart?.svg).toContain('>4 ms</text>');
});

it('a suite without figures has no chart', () => {
  expect(charts([figure('something else', 1)])).toEqual([]);
});
