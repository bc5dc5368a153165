import { rmSync } from 'node:fs';
import { chmod, mkdtemp } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import pg from 'pg';
import { afterAll, beforeAll, expect, it, onTestFinished } from 'vitest';
import { migrate } from '../../src/database/migrate.ts';
import { type EmbeddedPostgres, startEmbeddedPostgres } from '../../src/embedded/postgres-server.ts';
import { createOutbox, fromPg } from '../../src/index.ts';
import { createTestDatabase, type TestDatabase } from '../support/database.ts';
import { until, within } from '../support/wait.ts';
import { runHere } from './fake-terminal.ts';
import { jsonError, projectFolder, spawnCli } from './run-cli.ts';

let shop: TestDatabase;
let folder: string;
/** The server of the outbox `billing`, which tests stop and start again. */
let server: EmbeddedPostgres;

beforeAll(async () => {
  shop = await createTestDatabase();
  await migrate({ connectionString: shop.url, schema: 'audit_log' });
  folder = await mkdtemp(join(tmpdir(), 'postcommit-billing-'));
  await chmod(folder, 0o755); // The server may run as another user.
  server = await startEmbeddedPostgres({ dataDirectory: join(folder, 'data') });
  await migrate({ connectionString: server.connectionString });
});
afterAll(async () => {
  await server?.stop();
  await shop?.close();
  rmSync(folder, { recursive: true, force: true });
});

async function startAgain(): Promise<void> {
  const { port, dataDirectory } = server;
  server = await startEmbeddedPostgres({ port, dataDirectory });
}

/** A config file with two outboxes, and one more in another schema of the first database. */
function project(): string {
  return projectFolder({
    'postcommit.config.mjs': `export default {
      handlers: { 'order.created': { work: async () => {} } },
      pollIntervalMs: 100,
      http: { port: 0 },
      outboxes: {
        shop: { connectionString: ${JSON.stringify(shop.url)} },
        billing: { connectionString: ${JSON.stringify(server.connectionString)} },
        audit: { connectionString: ${JSON.stringify(shop.url)}, schema: 'audit_log' },
      },
    };`,
  });
}

async function emitTo(connectionString: string, schema = 'postcommit'): Promise<string> {
  const pool = new pg.Pool({ connectionString, max: 1 });
  try {
    const outbox = createOutbox({ db: fromPg(pool), schema });
    return await outbox.transaction((_tx, emit) =>
      emit({ type: 'order.created', aggregate: ['order', '1'], payload: {} }),
    );
  } finally {
    await pool.end();
  }
}

interface LogLine {
  message: string;
  outbox?: string;
  url?: string;
  event_id?: string;
}

function startRelay(cwd: string) {
  const child = spawnCli(['relay', '--dashboard', '0', '--log-level', 'debug'], { cwd });
  onTestFinished(() => void child.kill('SIGKILL'));
  const lines: LogLine[] = [];
  createInterface({ input: child.stdout as NodeJS.ReadableStream }).on('line', (line) => lines.push(JSON.parse(line)));
  const exited = new Promise<number | null>((resolve) => child.once('close', resolve));
  const logged = async (what: string, matches: (line: LogLine) => boolean): Promise<LogLine> => {
    await until(() => lines.some(matches), { timeoutMs: 40_000, what });
    return lines.find(matches) as LogLine;
  };
  return {
    logged,
    delivered: (outbox: string, id: string) =>
      logged(`${outbox} has delivered ${id}`, (line) => line.event_id === id && line.outbox === outbox),
    stop: () => {
      child.kill('SIGTERM');
      return within(exited, { timeoutMs: 20_000, what: 'the relay has ended' });
    },
  };
}

it('one process serves all outboxes of the config file, and one that is down disturbs no other', async () => {
  await server.stop();
  const relay = startRelay(project());
  const isDashboard = ({ message }: LogLine) => message === 'serving the dashboard';
  const dashboard = (await relay.logged('the dashboard is served', isDashboard)).url;
  const serving = await relay.logged('the endpoints are served', ({ message }) => message.startsWith('serving /livez'));
  const glances = async () =>
    ((await (await fetch(`${dashboard}/api/outboxes`)).json()) as { outboxes: { name: string; level: string }[] })
      .outboxes;

  await relay.delivered('shop', await emitTo(shop.url));
  await relay.delivered('audit', await emitTo(shop.url, 'audit_log'));
  expect(await glances()).toEqual([
    expect.objectContaining({ name: 'shop', level: 'good' }),
    expect.objectContaining({ name: 'billing', level: 'unreachable' }),
    expect.objectContaining({ name: 'audit', level: 'good' }),
  ]);
  const ready = await fetch(`${serving.url}/readyz`);
  expect([ready.status, await ready.text()]).toEqual([
    200,
    expect.stringMatching(/^shop: ok\nbilling: the relay is (idle|starting)\naudit: ok\n$/),
  ]);

  await startAgain();
  await relay.delivered('billing', await emitTo(server.connectionString));
  await until(async () => (await glances())[1]?.level === 'good', {
    what: 'the dashboard shows billing',
    timeoutMs: 20_000,
  });
  const metrics = await (await fetch(`${serving.url}/metrics`)).text();
  for (const name of ['shop', 'billing', 'audit']) {
    expect(metrics).toMatch(new RegExp(`outbox_events_published_total{outbox="${name}".*} 1`));
  }
  expect(metrics.match(/^# TYPE outbox_events_published_total/gm)).toHaveLength(1);

  await server.stop();
  await until(async () => (await glances())[1]?.level === 'unreachable', {
    what: 'the dashboard shows that billing is down',
    timeoutMs: 20_000,
  });
  await relay.delivered('shop', await emitTo(shop.url));
  await startAgain();
  await relay.delivered('billing', await emitTo(server.connectionString));
  expect(await relay.stop()).toBe(0);
}, 120_000);

it('delivers what is due in all outboxes with --once, and says which failed', async () => {
  const cwd = project();
  await emitTo(shop.url);
  await server.stop();
  const result = await runHere(['relay', '--once', '--json'], { cwd });
  expect(result.code).toBe(1);
  expect(JSON.parse(result.stdout)).toMatchObject({
    shop: { delivered: 1, complete: true },
    billing: { error: { code: 'POSTCOMMIT_E_DATABASE_UNREACHABLE' } },
    audit: { delivered: 0, complete: true },
  });
  await startAgain();
});

it('other commands need --outbox', async () => {
  const cwd = project();
  const none = await runHere(['status', '--json'], { cwd });
  expect([none.code, jsonError(none).message]).toEqual([2, expect.stringContaining('--outbox: shop, billing, audit')]);
  const wrong = await runHere(['status', '--outbox', 'shp', '--json'], { cwd });
  expect([wrong.code, jsonError(wrong).message]).toEqual([2, expect.stringContaining('Did you mean shop?')]);
  for (const [outbox, schema] of [
    ['shop', 'postcommit'],
    ['audit', 'audit_log'],
  ] as const) {
    // An outbox with a database and a schema of its own keeps both.
    const env = {
      DATABASE_URL: 'postgres://nowhere:1/none',
      ...(outbox === 'audit' && { POSTCOMMIT_SCHEMA: 'other' }),
    };
    const result = await runHere(['status', '--outbox', outbox, '--json'], { cwd, env });
    expect(JSON.parse(result.stdout), result.stderr).toMatchObject({ schema });
  }
  const both = await runHere(['dashboard', '--database-url', shop.url, '--json'], { cwd });
  expect([both.code, jsonError(both).code]).toEqual([2, 'POSTCOMMIT_E_USAGE']);
  const alone = await runHere(['status', '--outbox', 'shop', '--json'], { env: { DATABASE_URL: shop.url } });
  expect([alone.code, jsonError(alone).message]).toEqual([2, expect.stringContaining('no config file with outboxes')]);
});

it.each([
  ['outboxes: {}', 'must be an object of outboxes by name'],
  ['outboxes: { shop: 1 }', 'outboxes.shop must be an object'],
  ["outboxes: { 'a/b': {} }", 'is not a valid outbox name'],
  ['outboxes: { shop: { http: { port: 1 } } }', 'outboxes.shop: Unknown option "http"'],
  ['outboxes: { shop: { conectionString: "" } }', 'Did you mean connectionString?'],
])('refuses %s', async (text, message) => {
  const cwd = projectFolder({ 'postcommit.config.mjs': `export default { ${text} };` });
  const result = await runHere(['status', '--outbox', 'shop', '--json'], { cwd });
  expect([result.code, jsonError(result).message]).toEqual([2, expect.stringContaining(message)]);
});
