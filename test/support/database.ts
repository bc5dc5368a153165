import { randomBytes } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';
import pg from 'pg';
import { inject } from 'vitest';
import { migrate } from '../../src/database/migrate.ts';

// Any number, the same in all test processes.
const templateLock = 7_305_512;

export interface TestDatabase {
  readonly url: string;
  readonly pool: pg.Pool;
  /** The rows of one statement. */
  // biome-ignore lint/suspicious/noExplicitAny: a test knows the columns it asked for.
  query<Row = any>(text: string, values?: unknown[]): Promise<Row[]>;
  /** Ends the pool and drops the database, also while sessions are connected. May be called again. */
  close(): Promise<void>;
}

export interface TestDatabaseOptions {
  /** Whether the outbox tables are there. Default true. */
  migrate?: boolean;
  /** Default UTF8. */
  encoding?: string;
  /** Default: the server that all tests share. */
  serverUrl?: string;
}

/** A database for one test file, so that files run in parallel. Migrated ones are copies of one template per server. */
export async function createTestDatabase(options: TestDatabaseOptions = {}): Promise<TestDatabase> {
  const serverUrl = options.serverUrl ?? inject('serverUrl');
  const runId = inject('runId');
  const name = `postcommit_test_${runId}_${randomBytes(6).toString('hex')}`;
  const url = databaseUrl(serverUrl, name);
  await onServer(serverUrl, async (admin) => {
    if (options.migrate === false || options.encoding !== undefined) {
      const locale = options.encoding ? ` encoding '${options.encoding}' lc_collate 'C' lc_ctype 'C'` : '';
      await admin.query(`create database "${name}" template template0${locale}`);
      if (options.migrate !== false) await migrate({ connectionString: url });
      return;
    }
    const template = `postcommit_template_${runId}_0`;
    await createTemplate(admin, serverUrl, template);
    await admin.query(`create database "${name}" template "${template}"`);
  });

  const pool = new pg.Pool({ connectionString: url, max: 10 });
  // Connections break whenever a test restarts the server or cuts a line; the next query tells. Checked-out clients
  // need a listener of their own, or the event ends the process.
  pool.on('error', () => {});
  pool.on('connect', (client) => client.on('error', () => {}));
  let closed: Promise<void> | undefined;
  return {
    url,
    pool,
    async query(text, values) {
      const { rows } = await pool.query(text, values);
      return rows;
    },
    close() {
      closed ??= (async () => {
        // A test that failed may hold a client for ever; dropping the database ends that connection anyhow.
        await Promise.race([pool.end(), sleep(1_000, undefined, { ref: false })]);
        await onServer(serverUrl, (admin) => admin.query(`drop database if exists "${name}" with (force)`));
      })();
      return closed;
    },
  };
}

async function createTemplate(admin: pg.Client, serverUrl: string, template: string): Promise<void> {
  await admin.query('select pg_advisory_lock($1)', [templateLock]);
  try {
    const { rowCount } = await admin.query('select from pg_database where datname = $1', [template]);
    if (rowCount !== 0) return;
    // Under another name until it is complete: a failed migration must not pass for a template.
    const unfinished = `${template}_unfinished`;
    await admin.query(`drop database if exists "${unfinished}" with (force)`);
    await admin.query(`create database "${unfinished}" template template0`);
    await migrate({ connectionString: databaseUrl(serverUrl, unfinished) });
    await admin.query(`alter database "${unfinished}" rename to "${template}"`);
  } finally {
    await admin.query('select pg_advisory_unlock($1)', [templateLock]);
  }
}

async function onServer(serverUrl: string, work: (admin: pg.Client) => Promise<unknown>): Promise<void> {
  const admin = new pg.Client({ connectionString: serverUrl });
  await admin.connect();
  try {
    await work(admin);
  } finally {
    await admin.end();
  }
}

function databaseUrl(serverUrl: string, name: string): string {
  const url = new URL(serverUrl);
  url.pathname = `/${name}`;
  return url.href;
}
