import { existsSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { setTimeout as sleep } from 'node:timers/promises';
import { afterEach, beforeEach, describe, expect, it, onTestFinished } from 'vitest';
import { createOutbox, fromPg } from '../../src/index.ts';
import type { TestDatabase } from '../support/database.ts';
import { createTestDatabase } from '../support/database.ts';
import { until, within } from '../support/wait.ts';
import { projectFolder, spawnCli } from './run-cli.ts';

// The handler tells that it has begun and then waits for the file `go`.
const config = `
import { existsSync, writeFileSync } from 'node:fs';
import { setTimeout as sleep } from 'node:timers/promises';
import { createServer } from 'node:net';
import { defineConfig } from 'postcommit';

// As a connection pool of the application would, it keeps the process alive.
createServer().listen(0);

export default defineConfig({
  connectionString: 'postgres://app:hunter2secret@127.0.0.1:1/wrong',
  name: 'from-the-file',
  handlers: {
    'order.created': {
      slow: async () => {
        writeFileSync('begun', '');
        while (!existsSync('go')) await sleep(5);
        writeFileSync('finished', '');
      },
    },
    'order.careless': {
      forgets: async () => void Promise.reject(new Error('not caught')),
    },
  },
});
`;

interface LogLine {
  level: string;
  message: string;
  [field: string]: unknown;
}

function startRelay(cwd: string, databaseUrl: string, ...args: string[]) {
  const child = spawnCli(['relay', ...args], { cwd, env: { DATABASE_URL: databaseUrl } });
  onTestFinished(() => void child.kill('SIGKILL'));
  const lines: LogLine[] = [];
  let stderr = '';
  child.stderr?.setEncoding('utf8').on('data', (text) => {
    stderr += text;
  });
  if (child.stdout)
    createInterface({ input: child.stdout }).on('line', (line) => lines.push(JSON.parse(line) as LogLine));
  const exited = new Promise<number | null>((resolve) => child.once('close', (code) => resolve(code)));
  return {
    lines,
    kill: (signal: NodeJS.Signals) => child.kill(signal),
    exited: () => within(exited, { timeoutMs: 20_000, what: 'the relay has ended' }),
    running: () => child.exitCode === null,
    logged: (message: string) =>
      until(() => lines.find((line) => line.message.startsWith(message)), {
        timeoutMs: 20_000,
        what: `the relay logs "${message}" (stderr: ${stderr})`,
      }),
    stderr: () => stderr,
  };
}

describe('postcommit relay', () => {
  let db: TestDatabase;
  let cwd: string;

  beforeEach(async () => {
    db = await createTestDatabase();
    cwd = projectFolder({ 'postcommit.config.ts': config });
  });
  afterEach(() => db.close());

  const emit = (type: string) =>
    createOutbox({ db: fromPg(db.pool) }).transaction((_tx, emitOne) =>
      emitOne({ type, aggregate: ['order', '1'], payload: {} }),
    );
  const statusOf = async (id: string) =>
    (await db.query('select status from postcommit.outbox_status where id = $1', [id]))[0].status;
  const handlerHasBegun = () =>
    until(() => existsSync(join(cwd, 'begun')), { timeoutMs: 20_000, what: 'the handler has begun' });

  it('needs no handlers where there are destinations', async () => {
    const folder = projectFolder({
      'postcommit.config.ts': `
import { appendFileSync } from 'node:fs';
import { defineConfig } from 'postcommit';

const capabilities = {
  batchSizeMax: 10, batchBytesMax: 1_000_000, batchesInFlightMax: 1,
  ordered: true, keyRuns: true, deduplicates: false, cloudEventsPrefix: 'ce-',
};
export default defineConfig({
  destinations: {
    file: {
      kind: 'file',
      capabilities,
      connect: async () => {},
      publish: async (batch) => batch.map(({ topic }) => (appendFileSync('sent', topic), { kind: 'delivered' })),
      health: async () => {},
      close: async () => {},
    },
  },
  route: (event) => ({ to: 'file', topic: event.type }),
});
`,
    });
    const id = await emit('order.created');
    const relay = startRelay(folder, db.url, '--once');
    expect(await relay.exited(), relay.stderr()).toBe(0);
    expect(readFileSync(join(folder, 'sent'), 'utf8')).toBe('order.created');
    expect(await statusOf(id)).toBe('SENT');
  });

  it('G10: lets the delivery under way finish on SIGTERM and exits with 0', async () => {
    const id = await emit('order.created');
    const relay = startRelay(cwd, db.url, '--log-level', 'debug', '--name', 'from-the-flag');
    await handlerHasBegun();
    relay.kill('SIGTERM');
    await relay.logged('stopping');
    expect(existsSync(join(cwd, 'finished'))).toBe(false);
    writeFileSync(join(cwd, 'go'), '');
    expect(await relay.exited()).toBe(0);
    expect(existsSync(join(cwd, 'finished'))).toBe(true);
    expect(await statusOf(id)).toBe('SENT');

    expect(relay.stderr()).toBe('');
    expect(relay.lines.find(({ message }) => message === 'relay started')).toMatchObject({
      level: 'info',
      relay: 'from-the-flag',
    });
    expect(relay.lines.find(({ message }) => message === 'delivered')).toMatchObject({
      level: 'debug',
      event_id: id,
      attempt: 1,
    });
    expect(relay.lines.at(-1)).toMatchObject({ message: 'relay stopped', released: 0 });
    const relays = await db.query('select name, ended_as from postcommit.outbox_relays order by token desc limit 1');
    expect(relays).toEqual([{ name: 'from-the-flag', ended_as: 'stopped' }]);
  });

  it('ends at once on a second signal, and the event stays to be delivered', async () => {
    const id = await emit('order.created');
    const relay = startRelay(cwd, db.url);
    await handlerHasBegun();
    relay.kill('SIGINT');
    await relay.logged('stopping');
    // Repeats within a quarter of a second count as the same press of Ctrl-C.
    while (relay.running()) {
      relay.kill('SIGINT');
      await sleep(20);
    }
    expect(await relay.exited()).toBe(130);
    expect(existsSync(join(cwd, 'finished'))).toBe(false);
    expect(await statusOf(id)).toBe('PROCESSING');
  });

  it('does not even begin when the signal comes while the config file is loading', async () => {
    const slow =
      "import { existsSync, writeFileSync } from 'node:fs'; writeFileSync('begun', ''); while (!existsSync('go')) await new Promise((r) => setTimeout(r, 5));";
    cwd = projectFolder({ 'postcommit.config.ts': `${slow} export default { handlers: { a: { b: () => {} } } };` });
    const relay = startRelay(cwd, db.url);
    await handlerHasBegun();
    relay.kill('SIGTERM');
    // The signal is on its way; the file may be finished before it arrives, and then the relay stops at once.
    writeFileSync(join(cwd, 'go'), '');
    expect(await relay.exited()).toBe(0);
    expect(relay.stderr()).toBe('');
  });

  it('releases its events and fails when a handler leaves an uncaught error', async () => {
    await emit('order.careless');
    const relay = startRelay(cwd, db.url);
    expect(await relay.exited()).toBe(1);
    const line = relay.lines.find(({ level, message }) => level === 'error' && message === 'uncaught error, stopping');
    expect(line).toMatchObject({ error: 'not caught' });
    expect(relay.lines.at(-1)).toMatchObject({ message: 'relay stopped' });
  });
});
