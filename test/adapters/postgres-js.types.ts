import postgres from 'postgres';
import { fromPostgresJs } from '../../src/adapters/postgres-js.ts';
import { createOutbox, type Outbox, type OutboxEvent } from '../../src/index.ts';

declare const event: OutboxEvent;
const sql = postgres('');
const outbox = createOutbox({ db: fromPostgresJs(sql) });

outbox satisfies Outbox<postgres.TransactionSql>;
void sql.begin((tx) => outbox.emit(tx, event));
void sql.begin((tx) => tx.savepoint((inner) => outbox.emit(inner, event)));
// What the callback gets is the client's own type.
void outbox.transaction(async (tx) => tx`insert into orders (id) values (${1})`);

// @ts-expect-error The sql object is no transaction.
void outbox.emit(sql, event);
// @ts-expect-error A reserved connection is no transaction.
void sql.reserve().then((reserved) => outbox.emit(reserved, event));
// @ts-expect-error A transaction cannot open others.
void sql.begin(async (tx) => fromPostgresJs(tx));
