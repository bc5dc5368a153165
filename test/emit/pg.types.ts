import type pg from 'pg';
import { createOutbox, fromPg, type Outbox, type OutboxEvent } from '../../src/index.ts';

declare const event: OutboxEvent;
declare const pool: pg.Pool;
const outbox = createOutbox({ db: fromPg(pool) });

outbox satisfies Outbox<pg.PoolClient>;
// What the callback gets is the client's own type.
void outbox.transaction(async (tx) => {
  const { rows } = await tx.query<{ id: number }>({ text: 'select 1 as id', values: [] });
  rows[0]?.id satisfies number | undefined;
});
void pool.connect().then((client) => outbox.emit(client, event));

// A wrapper needs no callback form.
declare const wrapper: {
  connect(): Promise<pg.PoolClient>;
  query: pg.Pool['query'];
  on: pg.Pool['on'];
};
// @ts-expect-error The pool is no transaction.
void outbox.emit(pool, event);
void createOutbox({ db: fromPg(wrapper) });
