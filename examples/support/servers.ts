import { randomBytes } from 'node:crypto';
import pg from 'pg';
import { startService } from '../../services/private-service.ts';
import { services } from '../../services/registry.ts';
import { NotAvailable } from '../../services/service.ts';
import { startEmbeddedPostgres } from '../../src/embedded/postgres-server.ts';

/** What an example runs against. A service of yours has all of this already. */
export interface ExampleServers {
  /** An empty database. */
  databaseUrl: string;
  /** Creates another one beside it, for a second service, and returns its URL. */
  addDatabase(): Promise<string>;
  /** As the broker's environment variable has it; empty where an example needs none. */
  brokerUrl: string;
  /** Removes what was made for the example. */
  close(): Promise<void>;
}

interface Server {
  url: string;
  close(): Promise<void>;
}

interface DatabaseServer extends Server {
  addDatabase(): Promise<string>;
}

/**
 * Yours where DATABASE_URL or the broker's variable (KAFKA_BROKERS, RABBITMQ_URL) names one; otherwise servers of the
 * example's own, which end with it.
 */
export async function startServers(broker?: 'kafka' | 'rabbitmq'): Promise<ExampleServers> {
  const database = await openDatabase(process.env.DATABASE_URL);
  try {
    const opened = broker === undefined ? undefined : await openBroker(broker);
    return {
      databaseUrl: database.url,
      addDatabase: () => database.addDatabase(),
      brokerUrl: opened?.url ?? '',
      async close() {
        await opened?.close();
        await database.close();
      },
    };
  } catch (error) {
    await database.close();
    if (!(error instanceof NotAvailable)) throw error;
    console.error(error.message);
    process.exit(1);
  }
}

/** On a server that is given: databases of the example's own, so that it meets no events but its own. */
async function openDatabase(serverUrl: string | undefined): Promise<DatabaseServer> {
  if (!serverUrl) {
    const server = await startEmbeddedPostgres();
    console.log('servers  a PostgreSQL was started (or set DATABASE_URL)');
    return {
      url: server.connectionString,
      addDatabase: async () => (await createDatabase(server.connectionString)).url,
      close: () => server.stop(),
    };
  }
  const created = [await createDatabase(serverUrl)];
  console.log(`servers  the database ${created[0]?.name} was created in DATABASE_URL`);
  return {
    url: created[0]?.url ?? '',
    async addDatabase() {
      const another = await createDatabase(serverUrl);
      created.push(another);
      return another.url;
    },
    async close() {
      for (const { name } of created) await onServer(serverUrl, `drop database "${name}" with (force)`);
    },
  };
}

async function createDatabase(serverUrl: string): Promise<{ name: string; url: string }> {
  const name = `postcommit_example_${randomBytes(6).toString('hex')}`;
  await onServer(serverUrl, `create database "${name}"`);
  const url = new URL(serverUrl);
  url.pathname = `/${name}`;
  return { name, url: url.href };
}

async function openBroker(name: 'kafka' | 'rabbitmq'): Promise<Server> {
  const { title, variable } = services[name];
  const given = process.env[variable];
  if (given) {
    console.log(`servers  ${title} is the one of ${variable}`);
    return { url: given, close: async () => {} };
  }
  console.log(`servers  starting ${title} (or set ${variable}); the first time it may have to be fetched`);
  const server = await startService(name);
  return { url: server.url, close: () => server.remove() };
}

async function onServer(connectionString: string, statement: string): Promise<void> {
  const client = new pg.Client({ connectionString });
  await client.connect();
  try {
    await client.query(statement);
  } finally {
    await client.end();
  }
}
