// npm run bench:docs -- [results.jsonl ...]: takes new results over, suite by suite, and writes docs/benchmarks.md.
import { existsSync, readFileSync, writeFileSync } from 'node:fs';
import { benchmarksPage } from './markdown.ts';
import { jsonLine, type Measurement, readJsonLines } from './report.ts';

const results = new URL('results.jsonl', import.meta.url);
const page = new URL('../docs/benchmarks.md', import.meta.url);

const read = (file: URL | string): Measurement[] => readJsonLines(readFileSync(file, 'utf8'));

let known = existsSync(results) ? read(results) : [];
for (const file of process.argv.slice(2)) {
  const fresh = read(file);
  const suites = new Set(fresh.map(({ suite }) => suite));
  known = [...known.filter(({ suite }) => !suites.has(suite)), ...fresh];
  console.log(`${file}: ${[...suites].join(', ')}`);
}
writeFileSync(results, known.map((measurement) => `${jsonLine(measurement)}\n`).join(''));
writeFileSync(page, benchmarksPage(known));
console.log(`docs/benchmarks.md has ${known.length} figures.`);
