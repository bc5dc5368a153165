import { randomBytes } from 'node:crypto';
import pg from 'pg';
import type { TestProject } from 'vitest/node';
import { startEmbeddedPostgres } from '../../src/embedded/postgres-server.ts';
import { recordServer, startServerRecord } from './servers-used.ts';

declare module 'vitest' {
  export interface ProvidedContext {
    /** The server that the tests share. `createTestDatabase()` makes a database of one's own in it. */
    serverUrl: string;
    /** Part of the names of this run's databases. */
    runId: string;
  }
}

/** One PostgreSQL 18 for all tests, or the one in POSTCOMMIT_TEST_DATABASE_URL (its user must be a superuser). */
export default async function setup(project: TestProject): Promise<() => Promise<void>> {
  startServerRecord();
  const runId = randomBytes(4).toString('hex');
  const given = process.env.POSTCOMMIT_TEST_DATABASE_URL;
  const server = given
    ? undefined
    : await startEmbeddedPostgres({ version: 18, settings: { wal_level: 'logical', max_connections: '200' } });
  const serverUrl = server?.connectionString ?? given ?? '';
  recordServer(await serverVersion(serverUrl));
  project.provide('serverUrl', serverUrl);
  project.provide('runId', runId);

  return async () => {
    if (server === undefined) await dropLeftovers(serverUrl, runId);
    else await server.stop();
  };
}

async function serverVersion(connectionString: string): Promise<string> {
  const client = new pg.Client({ connectionString });
  await client.connect();
  try {
    const { rows } = await client.query(`select split_part(current_setting('server_version'), ' ', 1) as version`);
    return `PostgreSQL ${rows[0].version}`;
  } finally {
    await client.end();
  }
}

/** On a server that stays: the template, and what tests that were interrupted left behind. */
async function dropLeftovers(connectionString: string, runId: string): Promise<void> {
  const client = new pg.Client({ connectionString });
  await client.connect();
  try {
    const { rows } = await client.query('select datname from pg_database where datname like $1', [
      `postcommit\\_%\\_${runId}\\_%`,
    ]);
    for (const { datname } of rows) await client.query(`drop database if exists "${datname}" with (force)`);
  } finally {
    await client.end();
  }
}
