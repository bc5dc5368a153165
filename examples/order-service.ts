import type pg from 'pg';
import { createOutbox, fromPg, type Outbox } from 'postcommit';

/** There is nothing left in stock. */
export class SoldOut extends Error {
  constructor(options?: ErrorOptions) {
    super('sold out', options);
  }
}

/** PostgreSQL's code for it: there would be less than nothing in stock. */
const checkViolation = '23514';

/** An order service as one would write it anyway; what happens to an order is emitted where it is written. */
export class OrderService {
  readonly outbox: Outbox<pg.PoolClient>;

  constructor(pool: pg.Pool) {
    this.outbox = createOutbox({ db: fromPg<pg.PoolClient>(pool) });
  }

  /** Throws SoldOut when nothing is left: then there is neither an order nor an event. */
  async place(orderId: string, total: number): Promise<void> {
    const placing = this.outbox.transaction(async (tx, emit) => {
      await tx.query(`insert into orders (id, total, status) values ($1, $2, 'placed')`, [orderId, total]);
      await emit({ type: 'order.created', aggregate: ['order', orderId], payload: { total } });
      // The place in the transaction does not matter: what fails afterwards takes the event along.
      await tx.query('update stock set pieces = pieces - 1');
    });
    await placing.catch((error) => {
      throw error.code === checkViolation ? new SoldOut({ cause: error }) : error;
    });
  }

  async pay(orderId: string): Promise<void> {
    await this.outbox.transaction(async (tx, emit) => {
      await tx.query(`update orders set status = 'paid' where id = $1`, [orderId]);
      await emit({ type: 'order.paid', aggregate: ['order', orderId], payload: {} });
    });
  }
}

export async function createOrderTables(pool: pg.Pool, pieces: number): Promise<void> {
  await pool.query('create table orders (id text primary key, total integer not null, status text not null)');
  await pool.query('create table stock (pieces integer not null check (pieces >= 0))');
  await pool.query('insert into stock values ($1)', [pieces]);
}
