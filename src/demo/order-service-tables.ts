import pg from 'pg';
import { codedDatabaseError } from '../database/database-error.ts';
import { quoteIdentifier } from '../database/identifier.ts';

/** Where the order service and the outbox keep their tables. */
export interface DemoSchemas {
  shop: string;
  outbox: string;
}

/** The tables that the demo's statements name, quoted. */
export type DemoTables = ReturnType<typeof demoTables>;

export function demoTables({ shop, outbox }: DemoSchemas) {
  const inShop = (table: string) => `${quoteIdentifier(shop)}.${table}`;
  const inOutbox = (table: string) => `${quoteIdentifier(outbox)}.${table}`;
  return {
    orders: inShop('orders'),
    deliveries: inShop('demo_deliveries'),
    events: inOutbox('outbox_events'),
    queue: inOutbox('outbox_queue'),
    failures: inOutbox('outbox_failures'),
    deadLetters: inOutbox('outbox_dead_letters'),
    relays: inOutbox('outbox_relays'),
    status: inOutbox('outbox_status'),
  };
}

/**
 * The service's own tables. `orders.revision` counts the order's committed changes, and every change emits exactly one
 * event: so the business data alone says which events must have been delivered. `demo_deliveries` is what the handlers
 * saw, written by nobody else.
 */
export async function createTables(connection: pg.ClientConfig, schemas: DemoSchemas): Promise<void> {
  const tables = demoTables(schemas);
  await onClient(connection, async (client) => {
    await client.query(`
create table ${tables.orders} (
  id          bigint generated always as identity primary key,
  status      text not null check (status in ('created', 'paid', 'shipped')),
  total_cents integer not null,
  revision    integer not null default 1
);
create table ${tables.deliveries} (
  position    bigint generated always as identity primary key,
  event_id    uuid not null,
  relay       text not null,
  attempt     integer not null,
  received_at timestamptz not null default clock_timestamp()
)`);
  });
}

/** Fails when the schema exists: nothing that was there before may be dropped later. */
export async function createSchema(connection: pg.ClientConfig, schema: string): Promise<void> {
  await onClient(connection, (client) => client.query(`create schema ${quoteIdentifier(schema)}`));
}

export async function dropSchema(connection: pg.ClientConfig, schema: string): Promise<void> {
  await onClient(connection, (client) => client.query(`drop schema if exists ${quoteIdentifier(schema)} cascade`));
}

async function onClient(connection: pg.ClientConfig, work: (client: pg.Client) => Promise<unknown>): Promise<void> {
  const client = new pg.Client({ connectionTimeoutMillis: 10_000, ...connection });
  client.on('error', () => {}); // The failing statement reports it.
  try {
    await client.connect();
    await work(client);
  } catch (error) {
    throw codedDatabaseError(error);
  } finally {
    await client.end().catch(() => {});
  }
}
