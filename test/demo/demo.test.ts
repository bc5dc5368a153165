import { type ChildProcess, execFileSync, spawn } from 'node:child_process';
import { randomUUID } from 'node:crypto';
import { readdirSync } from 'node:fs';
import { chmod, mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { createTestDatabase } from '../support/database.ts';
import { deferred, until, within } from '../support/wait.ts';

let folder: string;
let marker: string;
const running = new Set<ChildProcess>();

beforeEach(async () => {
  folder = await mkdtemp(join(tmpdir(), 'postcommit-demo-test-'));
  await chmod(folder, 0o755); // The embedded server may run as another user.
  marker = `POSTCOMMIT_DEMO_TEST_${randomUUID()}`;
});

afterEach(async () => {
  for (const child of running) child.kill('SIGKILL');
  await rm(folder, { recursive: true, force: true });
});

/** The demo as its user starts it. Its temporary files go to a folder of ours, and what it starts carries our mark. */
function startDemo(...args: string[]) {
  const child = spawn(process.execPath, ['--import', 'tsx', 'src/cli/main.ts', 'demo', ...args], {
    env: { ...process.env, TMPDIR: folder, [marker]: '1' },
    stdio: ['ignore', 'pipe', 'pipe'],
  });
  running.add(child);
  const exited = deferred<{ code: number | null; stdout: string; stderr: string }>();
  const demo = { child, stdout: '', stderr: '', exited: exited.promise };
  child.stdout.setEncoding('utf8').on('data', (text: string) => {
    demo.stdout += text;
  });
  child.stderr.setEncoding('utf8').on('data', (text: string) => {
    demo.stderr += text;
  });
  child.once('close', (code) => {
    running.delete(child);
    exited.resolve({ code, stdout: demo.stdout, stderr: demo.stderr });
  });
  return demo;
}

/** Relays carry our mark in their environment, the server and its guardian our folder in their arguments. */
function leftProcesses(): string[] {
  const listed = execFileSync('ps', ['axeww', '-o', 'pid=,args='], { encoding: 'utf8', maxBuffer: 64 * 1024 * 1024 });
  return listed.split('\n').filter((line) => line.includes(marker) || line.includes(`${folder}/`));
}

async function expectNothingLeft(): Promise<void> {
  await until(() => leftProcesses().length === 0, { what: 'no process is left' });
  expect(readdirSync(folder).filter((name) => name.startsWith('postcommit'))).toEqual([]);
}

test('all checks pass, and nothing is left behind', async () => {
  const demo = startDemo('--seconds', '5', '--json');
  let relaysFound = false;
  await until(
    () => {
      relaysFound ||= leftProcesses().some((line) => line.includes('relay-process'));
      return relaysFound || demo.child.exitCode !== null;
    },
    { what: 'the relays run', timeoutMs: 30_000 },
  );
  const { code, stdout, stderr } = await within(demo.exited, { what: 'the demo ended', timeoutMs: 55_000 });
  expect({ code, stderr }).toMatchObject({ code: 0 });
  expect(relaysFound, 'this test can see the processes whose end it wants').toBe(true);
  const result = JSON.parse(stdout);
  expect(result).toMatchObject({ ok: true, lost: 0, leaked: 0, orderViolations: 0, deadLetters: 1 });
  for (const name of ['committed', 'rolledBack', 'delivered', 'retries', 'killedRelayPid', 'takeoverMs']) {
    expect(result[name], name).toBeGreaterThan(0);
  }
  expect(result.committed).toBe(result.delivered + result.deadLetters);
  expect(result.duplicates).toBeGreaterThanOrEqual(0);
  expect(stderr).toMatch(/status --database-url postgres:\/\//);
  await expectNothingLeft();
}, 90_000);

test('in a given database it prints text and drops its schema', async () => {
  const db = await createTestDatabase({ migrate: false });
  try {
    const schemas = () => db.query('select nspname from pg_namespace order by 1');
    const before = await schemas();
    const demo = startDemo('--seconds', '2', '--database-url', db.url);
    const { code, stdout, stderr } = await within(demo.exited, { what: 'the demo ended', timeoutMs: 55_000 });
    expect({ code, stdout, stderr }).toMatchObject({ code: 0 });
    expect(stdout).toMatch(/relay [AB] killed with SIGKILL while it had claimed \d+ events?/);
    expect(stdout).toMatch(/relay [AB] took over \d+ events? after \d\.\d s/);
    expect(stdout).toMatch(/✓ nothing lost +[\d,]+ events committed = [\d,]+ delivered \+ 1 dead letter/);
    expect(stdout).not.toContain('✗');
    expect(stdout, 'no escape sequences in a pipe').not.toContain('\x1b');
    expect(stdout, 'the given address may hold a password').not.toContain(db.url);
    expect(await schemas()).toEqual(before);
    await expectNothingLeft();
  } finally {
    await db.close();
  }
}, 90_000);

test('Ctrl-C ends it with 130 and leaves nothing behind', async () => {
  const db = await createTestDatabase({ migrate: false });
  try {
    const demoSchemas = () => db.query(`select nspname from pg_namespace where nspname like 'postcommit%'`);
    const demo = startDemo('--seconds', '60', '--database-url', db.url, '--dashboard', '0');
    await until(() => demo.stdout.includes('relay A and relay B are delivering'), {
      what: 'the demo is under way',
      timeoutMs: 30_000,
    });
    expect(await demoSchemas()).toHaveLength(1);
    const [, url] = /Dashboard: (http:\S+)/.exec(demo.stdout) ?? [];
    expect(await (await fetch(`${url}/api/me`)).json()).toMatchObject({ outboxes: ['demo'] });
    demo.child.kill('SIGINT');
    const { code, stderr } = await within(demo.exited, { what: 'the demo ended', timeoutMs: 20_000 });
    expect({ code, stderr }).toMatchObject({ code: 130 });
    expect(await demoSchemas()).toEqual([]);
    await expectNothingLeft();
  } finally {
    await db.close();
  }
}, 90_000);
