import { randomBytes } from 'node:crypto';
import { findServer } from '../database/connect.ts';
import { resolveConnectionForWriting } from '../database/connection-options.ts';
import { migrate } from '../database/migrate.ts';
import { startEmbeddedPostgres } from '../embedded/postgres-server.ts';
import type { DemoSchemas } from './order-service-tables.ts';
import { createSchema, createTables, dropSchema } from './order-service-tables.ts';

export interface DemoDatabase {
  connectionString: string;
  schemas: DemoSchemas;
  /** Whether the server lives as long as the demo. */
  embedded: boolean;
  /** Removes everything the demo made, and the server if it is the demo's own. */
  close(): Promise<void>;
}

/** A migrated database with the order service's tables: on a server of its own, or in a new schema of the given one. */
export async function openDemoDatabase(databaseUrl: string | undefined): Promise<DemoDatabase> {
  const database = databaseUrl === undefined ? await startOwnServer() : await createOwnSchema(databaseUrl);
  try {
    const { connectionString, schemas } = database;
    await migrate({ connectionString, schema: schemas.outbox });
    await createTables({ connectionString }, schemas);
    return database;
  } catch (error) {
    await database.close();
    throw error;
  }
}

async function startOwnServer(): Promise<DemoDatabase> {
  const server = await startEmbeddedPostgres();
  const { connectionString } = server;
  const schemas = { shop: 'shop', outbox: 'postcommit' };
  try {
    await createSchema({ connectionString }, schemas.shop);
  } catch (error) {
    await server.stop();
    throw error;
  }
  return { connectionString, schemas, embedded: true, close: () => server.stop() };
}

async function createOwnSchema(databaseUrl: string): Promise<DemoDatabase> {
  const { config } = await findServer(
    resolveConnectionForWriting({ connectionString: databaseUrl }),
    'postcommit demo',
  );
  const connectionString = config.connectionString as string;
  const schema = `postcommit_demo_${randomBytes(4).toString('hex')}`;
  await createSchema({ connectionString }, schema);
  return {
    connectionString,
    schemas: { shop: schema, outbox: schema },
    embedded: false,
    close: () => dropSchema({ connectionString }, schema),
  };
}
