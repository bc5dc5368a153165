import { randomBytes } from 'node:crypto';
import pg from 'pg';
import type { TestProject } from 'vitest/node';
import { buildPackage } from '../../scripts/built-package.ts';
import { services } from '../../services/registry.ts';
import type { ServiceName } from '../../services/service.ts';
import { NotAvailable } from '../../services/service.ts';
import { startTestPostgres } from './postgres-server.ts';
import { recordServer, startServerRecord } from './servers-used.ts';

declare module 'vitest' {
  export interface ProvidedContext {
    /** The server that the tests share. `createTestDatabase()` makes a database of one's own in it. */
    serverUrl: string;
    /** The shared server of PostgreSQL 14; undefined beside a server that was given. */
    oldServerUrl: string | undefined;
    /** The major version of `serverUrl`. */
    serverVersion: number;
    /** Whether it is the one in POSTCOMMIT_TEST_DATABASE_URL. */
    serverIsGiven: boolean;
    /** Part of the names of this run's databases. */
    runId: string;
    /** Brokers that this machine cannot have, by name, with the reason. */
    missingServices: Record<string, string>;
  }
}

/**
 * A PostgreSQL 18 and a 14 for all tests, or the one in POSTCOMMIT_TEST_DATABASE_URL (its user must be a superuser), and
 * the files of the brokers. Tests start brokers of their own, one or two at a time: most of them stop and freeze theirs.
 */
export default async function setup(project: TestProject): Promise<() => Promise<void>> {
  startServerRecord();
  const runId = randomBytes(4).toString('hex');
  const given = process.env.POSTCOMMIT_TEST_DATABASE_URL;
  const fetching = fetchServices();
  const settings = { wal_level: 'logical', max_connections: '200' };
  const starting = given
    ? []
    : [startTestPostgres({ version: 18, settings }), startTestPostgres({ version: 14, settings })];
  // Here, so that no test's timeout has a build in it.
  buildPackage();
  const [server, oldServer] = await Promise.all(starting);
  const serverUrl = server?.connectionString ?? given ?? '';
  const version = await serverVersion(serverUrl);
  recordServer(`PostgreSQL ${version}`);
  project.provide('serverUrl', serverUrl);
  project.provide('oldServerUrl', oldServer?.connectionString);
  project.provide('serverVersion', Number.parseInt(version, 10));
  project.provide('serverIsGiven', server === undefined);
  project.provide('runId', runId);
  project.provide('missingServices', await fetching);

  return async () => {
    if (server === undefined) await dropLeftovers(serverUrl, runId);
    else await Promise.all([server.stop(), oldServer?.stop()]);
  };
}

/** 109 MB for one file of `npm run test:long`, which fetches it itself. */
const neededByLong: ServiceName = 'schema-registry';

/** Once and before all tests, so that no test's timeout has a download in it. Quick when the files are there. */
async function fetchServices(): Promise<Record<string, string>> {
  const missing: Record<string, string> = {};
  const wanted = Object.values(services).filter(
    ({ name, variable }) => !process.env[variable] && name !== neededByLong,
  );
  await Promise.all(
    wanted.map(({ name, install }) =>
      install((line) => process.stderr.write(`${name}: ${line}\n`)).catch((error) => {
        // The tests that need the server report any other error.
        if (error instanceof NotAvailable) missing[name] = error.message;
      }),
    ),
  );
  return missing;
}

async function serverVersion(connectionString: string): Promise<string> {
  const client = new pg.Client({ connectionString });
  await client.connect();
  try {
    const { rows } = await client.query(`select split_part(current_setting('server_version'), ' ', 1) as version`);
    return rows[0].version;
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
