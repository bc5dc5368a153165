import { readFile } from 'node:fs/promises';
import { describe, expect, it } from 'vitest';
import { benchmarksPage } from '../../bench/markdown.ts';
import { compare, judged, type Measurement, readJsonLines } from '../../bench/report.ts';

const machine = { cpus: 2, cpu: 'a | b', memoryGb: 4, os: 'Linux 6' };

const figure = (name: string, value: number, more: Partial<Measurement> = {}): Measurement => ({
  suite: 'peers',
  name,
  value,
  unit: 'events/s',
  versions: { postgres: '18.4', [name]: '1.0' },
  settings: { events: 50_000, rounds: 3, ...machine },
  ...more,
});

describe('the page of benchmarks', () => {
  const ours = figure('ours', 40_000, { rounds: [39_000, 41_000], details: { walBytesPerEvent: 366.4 } });
  const theirs = figure('theirs', 30_000, { settings: { events: 5_000, rounds: 3, ...machine } });

  it('has comparisons with their goals, and figures with what only some of them have', () => {
    const page = benchmarksPage([ours, theirs, compare(ours, theirs, { atLeast: 1.2, next: 1.5 })]);
    expect(page).toContain('## Every peer, every mode');
    expect(page).toContain('Settings: rounds 3.');
    expect(page).toContain('| comparison | measured | ratio of medians | goal |  | next goal |');
    expect(page).toContain('| ours against theirs | 1.3 x | 1.333 x | at least 1.2 | met | 1.5: not yet |');
    expect(page).toContain('|  | median | rounds | WAL bytes per event | settings |');
    expect(page).toContain('| ours | 40,000 events/s | 39,000 to 41,000 | 366.4 | events 50,000 |');
    expect(page).toContain('| theirs | 30,000 events/s |  |  | events 5,000 |');
  });

  it('has the ratio of each round between its lowest and highest, and the ratio of medians beside it', () => {
    const a = figure('a', 1.28, { rounds: [1.01, 1.28, 1.29] });
    const b = figure('b', 1.02, { rounds: [1.0, 1.02, 1.28] });
    const page = benchmarksPage([a, b, compare(a, b, { atMost: 1.2 })]);
    expect(page).toContain('| comparison | measured | rounds: min / median / max | ratio of medians | goal |  |');
    expect(page).toContain('| a against b | 1.01 x | 1.008 / 1.01 / 1.255 | 1.255 x | at most 1.2 | met |');
  });

  it('tells missed goals, also of a figure by itself', () => {
    const memory = judged(figure('memory', 210, { suite: 'scale', unit: 'MB' }), { atMost: 200 });
    expect(benchmarksPage([memory])).toContain('| memory | 210 MB | at most 200 | **missed** |');
  });

  it('names the machine once, and every version', () => {
    const page = benchmarksPage([ours, theirs]);
    expect(page).toContain('Machine: 2 cores of a | b, 4 GB, Linux 6.');
    expect(page).toContain('Versions: ours 1.0 · postgres 18.4 · theirs 1.0.');
    expect(page).not.toContain('cpus');
  });

  it('has the suites in one order, whatever the order of the results, and no empty ones', () => {
    const emit = figure('no event', 1, { suite: 'emit', unit: 'ms' });
    const other = figure('x', 1, { suite: 'something new' });
    const page = benchmarksPage([other, ours, emit]);
    const headings = [...page.matchAll(/^## (.*)$/gm)].map(([, heading]) => heading);
    expect(headings).toEqual([
      'Reproduce',
      'What an event adds to a business transaction',
      'Every peer, every mode',
      'something new',
    ]);
  });

  it('says so when there is nothing yet', () => {
    expect(benchmarksPage([])).toContain('Nothing has been measured yet.');
  });

  it('is what bench/results.jsonl says', async () => {
    const read = (path: string) => readFile(new URL(`../../${path}`, import.meta.url), 'utf8');
    const results = readJsonLines(await read('bench/results.jsonl'));
    expect(await read('docs/benchmarks.md'), 'npm run bench:docs writes it anew').toBe(benchmarksPage(results));
  });
});
