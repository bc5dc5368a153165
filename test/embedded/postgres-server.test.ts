import { existsSync } from 'node:fs';
import { chmod, mkdtemp, rm } from 'node:fs/promises';
import { createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import pg from 'pg';
import { afterEach, expect, test } from 'vitest';
import { type EmbeddedPostgres, startEmbeddedPostgres } from '../../src/embedded/postgres-server.ts';
import { endChild, startChild } from '../support/child.ts';
import { recordServer } from '../support/servers-used.ts';
import { until, within } from '../support/wait.ts';

const started: EmbeddedPostgres[] = [];
const start: typeof startEmbeddedPostgres = async (options) => {
  const server = await startEmbeddedPostgres(options);
  started.push(server);
  return server;
};

afterEach(async () => {
  await Promise.all(started.splice(0).map((server) => server.stop()));
});

async function ask(server: { connectionString: string }, text: string): Promise<unknown[]> {
  const client = new pg.Client({ connectionString: server.connectionString });
  await client.connect();
  try {
    return (await client.query({ text, rowMode: 'array' })).rows.flat();
  } finally {
    await client.end();
  }
}

function isRunning(pid: number): boolean {
  try {
    process.kill(pid, 0);
    return true;
  } catch (error) {
    return (error as NodeJS.ErrnoException).code === 'EPERM';
  }
}

for (const version of [14, 18] as const) {
  test(`PostgreSQL ${version} starts, restarts with its data, and stops without a trace`, async () => {
    const server = await start({ version, settings: { wal_level: 'logical' } });
    const [major, level, addresses, encoding] = await ask(
      server,
      `select split_part(current_setting('server_version'), ' ', 1), current_setting('wal_level'),
         current_setting('listen_addresses'), current_setting('server_encoding')`,
    );
    expect(String(major)).toMatch(new RegExp(`^${version}\\.`));
    expect([level, addresses, encoding]).toEqual(['logical', '127.0.0.1', 'UTF8']);
    recordServer(`PostgreSQL ${major}`);

    await ask(server, 'create table kept as select 1 as n');
    const { pid: firstPid, port } = server;
    await server.restart();
    expect(server.pid).not.toBe(firstPid);
    expect(server.port).toBe(port);
    await ask(server, 'insert into kept values (2)');
    await server.restart('immediate');
    expect(await ask(server, 'select n from kept order by n')).toEqual([1, 2]);

    const lastPid = server.pid;
    await Promise.all([server.stop(), server.stop()]);
    expect([firstPid, lastPid].map(isRunning)).toEqual([false, false]);
    expect(existsSync(dirname(server.dataDirectory))).toBe(false);
    await expect(server.restart()).rejects.toMatchObject({ code: 'POSTCOMMIT_E_EMBEDDED_POSTGRES' });
  });
}

test('a given folder is kept and used again', async () => {
  const parent = await mkdtemp(join(tmpdir(), 'postcommit-kept-'));
  try {
    await chmod(parent, 0o755);
    const dataDirectory = join(parent, 'data');
    const first = await start({ dataDirectory });
    await ask(first, 'create table kept as select 7 as n');
    await first.stop();
    const second = await start({ dataDirectory });
    expect(await ask(second, 'select n from kept')).toEqual([7]);
    await second.stop();
    await expect(start({ dataDirectory, version: 14 })).rejects.toThrow(/belongs to PostgreSQL 18/);
  } finally {
    await rm(parent, { recursive: true, force: true });
  }
});

test('a taken port or a bad setting fails with a code and the log', async () => {
  const occupant = createServer();
  await new Promise<void>((ready) => occupant.listen(0, '127.0.0.1', ready));
  const address = occupant.address();
  const port = typeof address === 'object' && address !== null ? address.port : 0;
  await expect(start({ port })).rejects.toMatchObject({
    code: 'POSTCOMMIT_E_EMBEDDED_POSTGRES',
    message: expect.stringMatching(/could not bind IPv4 address "127.0.0.1"/),
  });
  await new Promise((closed) => occupant.close(closed));
  await expect(start({ settings: { wal_level: 'nonsense' } })).rejects.toMatchObject({
    code: 'POSTCOMMIT_E_EMBEDDED_POSTGRES',
    message: expect.stringMatching(/invalid value for parameter "wal_level": "nonsense"/),
  });
});

for (const signal of ['SIGTERM', 'SIGINT', 'SIGKILL'] as const) {
  test(`the server ends with a process that ${signal} ends`, async () => {
    const child = startChild('test/embedded/server-owner.child.ts');
    try {
      const { pid, dataDirectory } = await child.next();
      expect(isRunning(pid)).toBe(true);
      child.kill(signal);
      expect((await within(child.exited, { what: 'the owner ended' })).signal).toBe(signal);
      await until(() => !isRunning(pid), { what: 'the server ended', timeoutMs: 20_000 });
      await until(() => !existsSync(dirname(dataDirectory)), { what: 'its folder is gone' });
    } finally {
      await endChild(child);
    }
  });
}

test('signal handlers, exit code and natural end of the process stay its own', async () => {
  const handled = startChild('test/embedded/server-owner.child.ts', ['handle-sigterm']);
  const unstopped = startChild('test/embedded/server-owner.child.ts', ['return']);
  try {
    await handled.next();
    handled.kill('SIGTERM');
    // The server must still answer after the signal, as long as the application takes.
    expect(await handled.next()).toEqual({ answer: 1 });
    expect(await within(handled.exited, { what: 'the owner ended' })).toEqual({ code: 7, signal: null });

    const { pid } = await unstopped.next();
    expect(await within(unstopped.exited, { what: 'the owner ended' })).toEqual({ code: 7, signal: null });
    await until(() => !isRunning(pid), { what: 'the server ended', timeoutMs: 20_000 });
  } finally {
    await Promise.all([endChild(handled), endChild(unstopped)]);
  }
});
