import pg from 'pg';
import { monotonicMs } from '../clock.ts';
import type { CommitTimes, Emitter } from './contender.ts';

/** The business table of benchmarks that emit. */
export const createOrdersSql = `
create table orders (
  id       bigint primary key,
  customer text not null,
  cents    integer not null,
  created_at timestamptz not null default now()
)`;

export const insertOrderSql = 'insert into orders (id, customer, cents) values ($1, $2, $3)';

export const orderValues = (order: number): unknown[] => [order, `customer-${order % 997}`, 1_000 + (order % 9_000)];

/** An emitter over a plain `pg` pool: BEGIN, the order, what `emit` sends, COMMIT, each awaited. */
export function plainEmitter(
  connectionString: string,
  emit: (client: pg.PoolClient, order: number) => Promise<unknown>,
): Emitter {
  const pool = new pg.Pool({ connectionString });
  return {
    async emit(order): Promise<CommitTimes> {
      const client = await pool.connect();
      try {
        await client.query('begin');
        await client.query(insertOrderSql, orderValues(order));
        await emit(client, order);
        const commitSentAtMs = monotonicMs();
        await client.query('commit');
        return { commitSentAtMs, committedAtMs: monotonicMs() };
      } finally {
        client.release();
      }
    },
    stop: () => pool.end(),
  };
}
