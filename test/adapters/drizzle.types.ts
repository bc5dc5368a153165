import { drizzle as drizzlePg } from 'drizzle-orm/node-postgres';
import { pgTable, text } from 'drizzle-orm/pg-core';
import { drizzle as drizzlePostgresJs } from 'drizzle-orm/postgres-js';
import { fromDrizzle } from '../../src/adapters/drizzle.ts';
import { createOutbox, type OutboxEvent } from '../../src/index.ts';

declare const event: OutboxEvent;
const orders = pgTable('orders', { id: text('id').primaryKey() });
const onPg = drizzlePg('', { schema: { orders } });
const onPostgresJs = drizzlePostgresJs('');
const outbox = createOutbox({ db: fromDrizzle(onPg) });
const other = createOutbox({ db: fromDrizzle(onPostgresJs) });

void onPg.transaction((tx) => outbox.emit(tx, event));
void onPg.transaction((tx) => tx.transaction((inner) => outbox.emit(inner, event)));
void onPostgresJs.transaction((tx) => other.emit(tx, event));
// What the callback gets is the client's own type.
void outbox.transaction(async (tx) => tx.insert(orders).values({ id: '1' }));
void outbox.transaction(async (tx) => tx.query.orders.findFirst());

// @ts-expect-error The database is no transaction.
void outbox.emit(onPg, event);
// @ts-expect-error Neither is that of postgres.js.
void other.emit(onPostgresJs, event);
// @ts-expect-error A pool is no transaction.
void outbox.emit(onPg.$client, event);
