import pg from 'pg';
import { codedDatabaseError } from '../database/database-error.ts';
import { quoteIdentifier } from '../database/identifier.ts';

/** The schemas of the order service and of the outbox. */
export interface DemoSchemas {
  shop: string;
  outbox: string;
}

/** The tables of the demo's statements, quoted. */
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
 * The tables of the order service. `orders.revision` counts the committed changes of an order, and every change emits exactly
 * one event. So the business data alone determines which events must be delivered. Only handlers write `demo_deliveries`.
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

/** Fails if the schema exists: the demo must not drop a schema that it did not create. */
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
