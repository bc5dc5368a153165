import type { OutboxEvent } from '../../src/emit/event.ts';
import type { TestDatabase } from './database.ts';

/** The business side of a test: a table to write in the same transaction as the event. */
export async function createOrders(database: TestDatabase): Promise<void> {
  await database.query('create table orders (id text primary key, version integer not null default 0)');
}

/** Empties the tables, which is much faster than a new database. Waits for open transactions. */
export async function clear(database: TestDatabase): Promise<void> {
  await database.query('truncate orders, postcommit.outbox_events, postcommit.outbox_queue cascade');
}

export const insertOrder = 'insert into orders (id) values ($1)';

/** An event about this order. */
export function orderCreated(id: string, more: Partial<OutboxEvent> = {}): OutboxEvent {
  return { type: 'order.created', aggregate: ['order', id], payload: { id }, ...more };
}

export interface Written {
  orders: number;
  events: number;
  queued: number;
}

/** What is committed. `queued` can only differ from `events` where something was delivered. */
export async function written(database: TestDatabase): Promise<Written> {
  const [row] = await database.query<Written>(
    `select (select count(*)::integer from orders) as orders,
            (select count(*)::integer from postcommit.outbox_events) as events,
            (select count(*)::integer from postcommit.outbox_queue) as queued`,
  );
  if (row === undefined) throw new Error('no answer');
  return row;
}

export const nothing: Written = { orders: 0, events: 0, queued: 0 };
export const one: Written = { orders: 1, events: 1, queued: 1 };
