// npm run bench:docs -- [results.jsonl ...]: takes new results over, suite by suite, and writes docs/benchmarks.md with its charts.
import { existsSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { charts } from './charts.ts';
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
const images = new URL('../docs/images/', import.meta.url);
const drawn = charts(known);
for (const name of readdirSync(images)) if (/^bench-.*\.svg$/.test(name)) rmSync(new URL(name, images));
for (const { file, svg } of drawn) writeFileSync(new URL(file, images), svg);
console.log(`docs/benchmarks.md has ${known.length} figures and ${drawn.length} charts.`);
