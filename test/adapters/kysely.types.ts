import { Kysely, PostgresDialect, type Transaction } from 'kysely';
import { fromKysely } from '../../src/adapters/kysely.ts';
import { createOutbox, type Outbox, type OutboxEvent } from '../../src/index.ts';
import { quietPool } from '../support/quiet-pool.ts';

interface Tables {
  orders: { id: string };
}

declare const event: OutboxEvent;
const db = new Kysely<Tables>({ dialect: new PostgresDialect({ pool: quietPool('') }) });
const outbox = createOutbox({ db: fromKysely(db) });

outbox satisfies Outbox<Transaction<Tables>>;
void db.transaction().execute((trx) => outbox.emit(trx, event));
void db
  .startTransaction()
  .execute()
  .then((trx) => outbox.emit(trx, event));
// What the callback gets is the client's own type.
void outbox.transaction(async (trx) => trx.insertInto('orders').values({ id: '1' }).execute());
// @ts-expect-error No such table.
void outbox.transaction(async (trx) => trx.insertInto('invoices'));

// @ts-expect-error The Kysely instance is no transaction.
void outbox.emit(db, event);
// @ts-expect-error Neither is a single connection.
void db.connection().execute((connection) => outbox.emit(connection, event));
