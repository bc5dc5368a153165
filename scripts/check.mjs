#!/usr/bin/env node
// Every check but the tests: `npm run check`. All of them run, whatever fails; their output is shown when they do. Those of
// the package run beside the others: each alone leaves cores idle.
import { spawn } from 'node:child_process';
import { rmSync } from 'node:fs';
import { delimiter, dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';

const projectFolder = join(dirname(fileURLToPath(import.meta.url)), '..');

const checks = [
  { name: 'types', command: 'tsc --noEmit' },
  { name: 'types of the dashboard', command: 'tsc --noEmit -p src/dashboard/app' },
  { name: 'lint and format', command: 'biome check --error-on-warnings .' },
  { name: 'layers', command: 'node scripts/check-layers.mjs' },
  { name: 'language', command: 'node scripts/check-language.mjs' },
  { name: 'repository', command: 'node scripts/check-repository.mjs' },
  { name: 'unused code', command: 'knip' },
  // From nothing: files of sources that are gone would otherwise be published.
  { name: 'build', before: () => removeBuild(), command: 'node scripts/build.mjs' },
  { name: 'package', needs: 'build', command: 'publint --strict' },
  // ESM only: Node >= 20.19 can require() it, and older resolution modes are not supported.
  { name: 'package types', needs: 'build', command: 'attw --pack . --profile esm-only --no-definitely-typed' },
];

const colour = process.stdout.isTTY && !process.env.NO_COLOR;
const paint = (code, text) => (colour ? `\x1b[${code}m${text}\x1b[0m` : text);
const green = (text) => paint(32, text);
const red = (text) => paint(31, text);
const dim = (text) => paint(2, text);

const started = performance.now();
const ofPackage = ({ name, needs }) => name === 'build' || needs === 'build';
const lanes = [checks.filter((check) => ofPackage(check)), checks.filter((check) => !ofPackage(check))];
const results = (await Promise.all(lanes.map(runLane))).flat();
results.sort((a, b) => placeOf(a) - placeOf(b));

const width = Math.max(...checks.map(({ name }) => name.length));
for (const { name, outcome, milliseconds } of results) {
  const word = outcome === 'ok' ? green('ok     ') : outcome === 'failed' ? red('failed ') : dim('not run');
  console.log(`${name.padEnd(width)}  ${word}  ${`${(milliseconds / 1000).toFixed(1)} s`.padStart(7)}`);
}
const bad = results.filter(({ outcome }) => outcome !== 'ok').length;
console.log(
  bad === 0
    ? green(`${results.length} checks passed in ${((performance.now() - started) / 1000).toFixed(1)} s`)
    : red(`${bad} of ${results.length} checks did not pass`),
);
process.exitCode = bad === 0 ? 0 : 1;

function placeOf(result) {
  return checks.findIndex(({ name }) => name === result.name);
}

/** One after the other: `npm pack`, which two of them run, builds the package again. */
async function runLane(lane) {
  const done = [];
  for (const check of lane) {
    const result = await runCheck(check, done);
    done.push(result);
    if (result.outcome === 'failed') {
      console.log(`${red('failed')}: ${check.name} (${check.command})\n${result.output.trimEnd()}\n`);
    }
  }
  return done;
}

async function runCheck({ name, command, before, needs }, done) {
  if (needs && done.find((result) => result.name === needs)?.outcome !== 'ok') {
    return { name, outcome: 'not run', milliseconds: 0, output: '' };
  }
  const start = performance.now();
  before?.();
  const { code, output } = await run(command);
  return { name, outcome: code === 0 ? 'ok' : 'failed', milliseconds: performance.now() - start, output };
}

function run(command) {
  const path = [join(projectFolder, 'node_modules', '.bin'), process.env.PATH].join(delimiter);
  const env = { ...process.env, PATH: path, ...(colour ? { FORCE_COLOR: '1' } : { NO_COLOR: '1' }) };
  return new Promise((done) => {
    const child = spawn(command, { cwd: projectFolder, env, shell: true, stdio: ['ignore', 'pipe', 'pipe'] });
    let output = '';
    for (const stream of [child.stdout, child.stderr]) {
      stream.setEncoding('utf8').on('data', (text) => {
        output += text;
      });
    }
    child.once('close', (code) => done({ code, output }));
  });
}

function removeBuild() {
  rmSync(join(projectFolder, 'dist'), { recursive: true, force: true });
}
