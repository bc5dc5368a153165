import { execFile } from 'node:child_process';
import { chmod, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import pg from 'pg';
import type { EmbeddedPostgres } from '../../src/embedded/postgres-server.ts';
import { startTestPostgres } from './postgres-server.ts';
import { until } from './wait.ts';

export interface StandbyPair {
  readonly primary: EmbeddedPostgres;
  readonly standby: EmbeddedPostgres;
  /** Of this database on both servers, in this order, as libpq writes it. */
  url(database: string, order?: readonly EmbeddedPostgres[], parameters?: string): string;
  /** Waits until the standby has everything that the primary has committed. */
  caughtUp(): Promise<void>;
  /** Ends replication: from now on the standby lacks what the primary commits. */
  cutOff(): Promise<void>;
  /** Makes the standby a primary. */
  promote(): Promise<void>;
  close(): Promise<void>;
}

/** A primary and a streaming standby of it. */
export async function startStandbyPair(version: 18 | 14): Promise<StandbyPair> {
  const folder = await mkdtemp(join(tmpdir(), 'postcommit-standby-'));
  await chmod(folder, 0o711); // Where tests run as root, the server is another user.
  const [first, second] = [join(folder, 'first'), join(folder, 'second')];
  const begun = await startTestPostgres({ version, dataDirectory: first });
  const { port, connectionString } = begun;
  await begun.stop();
  // A copy of a stopped server needs no pg_basebackup, which the npm package lacks. -a keeps the owner.
  await promisify(execFile)('cp', ['-a', first, second]);
  await writeFile(join(second, 'standby.signal'), '');
  const primary = await startTestPostgres({ version, dataDirectory: first, port });
  const { username, password } = new URL(connectionString);
  const standby = await startTestPostgres({
    version,
    dataDirectory: second,
    settings: { primary_conninfo: `host=127.0.0.1 port=${port} user=${username} password=${password}` },
  });

  return {
    primary,
    standby,
    url(database, order = [primary, standby], parameters = '?target_session_attrs=read-write') {
      const hosts = order.map((server) => `127.0.0.1:${server.port}`).join(',');
      return `postgres://${username}:${password}@${hosts}/${database}${parameters}`;
    },
    async caughtUp() {
      const [row] = await ask(primary, 'select pg_current_wal_lsn()::text as lsn');
      const replayed = `select from pg_last_wal_replay_lsn() as lsn where lsn >= '${row?.lsn}'`;
      await until(async () => (await ask(standby, replayed)).length > 0, { what: 'the standby has caught up' });
    },
    async cutOff() {
      const rules = join(first, 'pg_hba.conf');
      await writeFile(rules, `host replication all 127.0.0.1/32 reject\n${await readFile(rules, 'utf8')}`);
      await ask(primary, 'select pg_reload_conf()');
      const ended = 'select pg_terminate_backend(pid) from pg_stat_replication';
      await until(async () => (await ask(primary, ended)).length === 0, { what: 'the standby is cut off' });
    },
    async promote() {
      await ask(standby, 'select pg_promote()');
    },
    async close() {
      await Promise.all([standby.stop(), primary.stop()]);
      await rm(folder, { recursive: true, force: true });
    },
  };
}

async function ask(server: EmbeddedPostgres, text: string): Promise<Record<string, unknown>[]> {
  const client = new pg.Client({ connectionString: server.connectionString });
  await client.connect();
  try {
    return (await client.query(text)).rows;
  } finally {
    await client.end();
  }
}
