import { once } from 'node:events';
import { afterAll, beforeAll, expect, onTestFinished, test } from 'vitest';
import { frame } from '../../src/cli/watch.ts';
import { createOutbox, fromPg } from '../../src/index.ts';
import { createTestDatabase, type TestDatabase } from '../support/database.ts';
import { startPostgresProxy } from '../support/postgres-proxy.ts';
import { until } from '../support/wait.ts';
import { runCli, spawnCli } from './run-cli.ts';

let db: TestDatabase;
beforeAll(async () => {
  db = await createTestDatabase();
});
afterAll(() => db.close());

function startWatch(args: string[], url: string) {
  const child = spawnCli(['status', '--watch', '200ms', ...args], { env: { DATABASE_URL: url } });
  onTestFinished(() => void child.kill('SIGKILL'));
  const written = { stdout: '', stderr: '' };
  for (const name of ['stdout', 'stderr'] as const) {
    child[name]?.setEncoding('utf8').on('data', (text) => {
      written[name] += text;
    });
  }
  const exited = once(child, 'exit');
  return { child, written, exited };
}

test('status --watch --json writes one document per line, survives an outage, and ends with Ctrl-C', async () => {
  const proxy = await startPostgresProxy(db.url);
  onTestFinished(() => proxy.close());
  const { child, written, exited } = startWatch(['--json', '--pending-max', '0'], proxy.url(db.url));
  const states = () =>
    written.stdout
      .split('\n')
      .slice(0, -1)
      .map((line) => JSON.parse(line));
  await until(() => states().length >= 2, { what: 'two states', timeoutMs: 20_000 });
  expect(states()[0]).toMatchObject({ schema: 'postcommit', pending: 0, ok: true });
  const event = { type: 't', aggregate: ['a', '1'] as const, payload: 1 };
  await createOutbox({ db: fromPg(db.pool) }).transaction((_tx, emit) => emit(event));
  await until(() => states().at(-1).pending === 1, { what: 'it shows the event' });
  expect(states().at(-1)).toMatchObject({ ok: false, exceeded: [{ check: 'pendingMax', limit: 0, found: 1 }] });
  proxy.refuse();
  proxy.cut();
  await until(() => written.stderr.includes('cannot read the state, retrying: '), { what: 'it reports the outage' });
  proxy.accept();
  const before = states().length;
  await until(() => states().length > before, { what: 'it shows the state again', timeoutMs: 20_000 });
  child.kill('SIGINT');
  expect(await exited).toEqual([0, null]);
});

test('without a terminal states follow each other as text', async () => {
  const { child, written, exited } = startWatch([], db.url);
  const count = () => written.stdout.split('outbox in schema postcommit').length - 1;
  await until(() => count() >= 2, { what: 'two states', timeoutMs: 20_000 });
  expect(written.stdout).not.toContain('\x1b');
  child.kill('SIGTERM');
  expect(await exited).toEqual([0, null]);
});

test('a database that cannot be reached at the start, or a bad interval, ends it', async () => {
  const env = { DATABASE_URL: 'postgres://127.0.0.1:1/none' };
  expect(await runCli(['status', '--watch'], { env })).toMatchObject({ code: 3, stdout: '' });
  expect(await runCli(['status', '--watch', 'often'], { env })).toMatchObject({ code: 2 });
});

test('a frame overwrites the last one, and fits into the terminal', () => {
  expect(frame('a\nb\n')).toBe('\x1b[Ha\x1b[K\nb\x1b[K\n\x1b[J');
  expect(frame('1\n2\n3\n4\n5\n', 4)).toBe('\x1b[H1\x1b[K\n2\x1b[K\n…\x1b[K\n\x1b[J');
  expect(frame('1\n2\n3\n', 4)).not.toContain('…');
});
