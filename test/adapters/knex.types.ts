import knex, { type Knex } from 'knex';
import { fromKnex } from '../../src/adapters/knex.ts';
import { createOutbox, type Outbox, type OutboxEvent } from '../../src/index.ts';

declare const event: OutboxEvent;
const db = knex({ client: 'pg' });
const outbox = createOutbox({ db: fromKnex(db) });

outbox satisfies Outbox<Knex.Transaction>;
void db.transaction((trx) => outbox.emit(trx, event));
void db.transaction((trx) => trx.transaction((inner) => outbox.emit(inner, event)));
// What the callback gets is the client's own type.
void outbox.transaction(async (trx) => trx('orders').insert({ id: 1 }));

// @ts-expect-error The knex instance is no transaction.
void outbox.emit(db, event);
// @ts-expect-error A query builder is no transaction.
void outbox.emit(db('orders'), event);
