// Runs the tests of each publisher with the oldest version of its client that Postcommit promises to work with, and with
// the newest one. Usage: npm run test:clients [-- name …] [--version x.y.z]
import { execFile, spawn } from 'node:child_process';
import { readFile, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { parseArgs, promisify } from 'node:util';
import { renderTable } from '../../src/cli/output.ts';
import { oldestClients } from '../../src/publishers/import-client.ts';
import { makeScratch } from '../package/packed-project.ts';
import { type ClientUnderTest, clients } from './clients.ts';
import { copyProject } from './copy-project.ts';

interface Result {
  readonly client: string;
  readonly versions: readonly string[];
  readonly passed: number;
  readonly failed: number;
  readonly skipped: number;
  readonly seconds: number;
  /** Why the tests could not run. */
  readonly missing?: string;
}

const { values, positionals } = parseArgs({ allowPositionals: true, options: { version: { type: 'string' } } });
const unknown = positionals.find((name) => !clients.some((client) => client.name === name));
if (unknown !== undefined) {
  console.error(`There is no client ${unknown}. Known clients: ${clients.map(({ name }) => name).join(', ')}.`);
  process.exit(2);
}

/** Ctrl-C ends what runs, and the temporary folder is removed all the same. */
const stop = new AbortController();
for (const signal of ['SIGINT', 'SIGTERM'] as const) process.once(signal, () => stop.abort());

const results: Result[] = [];
for (const client of clients.filter(({ name }) => positionals.length === 0 || positionals.includes(name))) {
  for (const versions of await versionsOf(client)) {
    if (stop.signal.aborted) break;
    console.log(`\n${client.packages.map((name, index) => `${name} ${versions[index]}`).join(', ')}`);
    results.push(await test(client, versions));
  }
}

const rows = results.map(({ client, versions, passed, failed, skipped, seconds, missing }) => {
  const counts = [passed, failed, skipped].map(String);
  return [client, [...new Set(versions)].join(', '), ...counts, `${seconds.toFixed(0)} s`, missing ?? ''];
});
console.log(`\n${renderTable(['CLIENT', 'VERSION', 'PASSED', 'FAILED', 'SKIPPED', 'TIME', ''], rows).join('\n')}`);
const isStrict = process.env.CI === 'true';
const isBad = ({ failed, missing }: Result) => failed > 0 || (isStrict && missing !== undefined);
process.exitCode = stop.signal.aborted || results.some(isBad) ? 1 : 0;

/** The oldest promised and the newest version of its packages; only one where they are the same. */
async function versionsOf({ packages }: ClientUnderTest): Promise<string[][]> {
  if (values.version !== undefined) return [packages.map(() => values.version as string)];
  const oldest = packages.map((name) => oldestClients[name]);
  const newest = await Promise.all(packages.map(newestVersion));
  return oldest.join() === newest.join() ? [oldest] : [oldest, newest];
}

async function newestVersion(name: string): Promise<string> {
  const { stdout } = await promisify(execFile)('npm', ['view', name, 'version'], {
    shell: process.platform === 'win32',
  });
  return stdout.trim();
}

async function test(client: ClientUnderTest, versions: readonly string[]): Promise<Result> {
  const startedAt = performance.now();
  const scratch = await makeScratch();
  const result = { client: client.name, versions, passed: 0, failed: 0, skipped: 0 };
  const seconds = () => (performance.now() - startedAt) / 1_000;
  try {
    let project: string;
    try {
      project = await copyProject(scratch, client, versions);
    } catch (error) {
      console.log(String(error).slice(0, 2_000));
      return { ...result, seconds: seconds(), missing: 'npm cannot install it here' };
    }
    const report = join(scratch, 'report.json');
    await runVitest(project, client, report);
    if (stop.signal.aborted) return { ...result, seconds: seconds(), missing: 'interrupted' };
    return { ...result, ...(await readReport(report)), seconds: seconds() };
  } finally {
    await rm(scratch, { recursive: true, force: true });
  }
}

/** Resolves when it has ended, whether tests failed or not: the report tells. */
function runVitest(project: string, { tests, env }: ClientUnderTest, report: string): Promise<void> {
  const files = tests.map((name) => `test/publishers/${name}.test.ts`);
  const vitest = join(project, 'node_modules/vitest/vitest.mjs');
  const args = [vitest, 'run', ...files, '--reporter=dot', '--reporter=json', `--outputFile.json=${report}`];
  const child = spawn(process.execPath, args, { cwd: project, stdio: 'inherit', env: { ...process.env, ...env } });
  const end = () => child.kill();
  stop.signal.addEventListener('abort', end, { once: true });
  return new Promise((resolve, reject) => {
    child.once('error', reject);
    child.once('exit', () => {
      stop.signal.removeEventListener('abort', end);
      resolve();
    });
  });
}

interface Report {
  readonly numPassedTests: number;
  readonly numFailedTests: number;
  readonly numPendingTests: number;
  readonly numFailedTestSuites: number;
}

async function readReport(path: string): Promise<Pick<Result, 'passed' | 'failed' | 'skipped' | 'missing'>> {
  const report = JSON.parse(await readFile(path, 'utf8')) as Report;
  const { numPassedTests: passed, numFailedTests, numPendingTests: skipped, numFailedTestSuites } = report;
  // A file that cannot be loaded fails without a test.
  const failed = numFailedTests === 0 ? numFailedTestSuites : numFailedTests;
  return { passed, failed, skipped, ...(passed + failed === 0 && { missing: 'its server or its Node is missing' }) };
}
