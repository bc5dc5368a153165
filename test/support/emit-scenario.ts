import { setTimeout as sleep } from 'node:timers/promises';
import type pg from 'pg';
import { afterAll, afterEach, beforeAll, beforeEach, expect } from 'vitest';
import { createOutbox, fromPg, type Outbox } from '../../src/index.ts';
import { createTestDatabase, type TestDatabase } from './database.ts';
import { clear, createOrders } from './orders.ts';
import { type PostgresProxy, startPostgresProxy } from './postgres-proxy.ts';
import { quietPool } from './quiet-pool.ts';

/** A service that emits: its orders, its pool through a proxy that can break, and its outbox. */
export interface EmitScenario {
  /** Not through the proxy: for looking at what was written. */
  readonly database: TestDatabase;
  readonly proxy: PostgresProxy;
  readonly pool: pg.Pool;
  readonly outbox: Outbox<pg.PoolClient>;
}

/** To be called inside a describe: one database for it, and everything else new for each test. */
export function useEmitScenario(poolOptions: pg.PoolConfig = {}): EmitScenario {
  let database: TestDatabase;
  let proxy: PostgresProxy;
  let pool: pg.Pool;
  let outbox: Outbox<pg.PoolClient>;

  beforeAll(async () => {
    database = await createTestDatabase();
    await createOrders(database);
    await database.query('create table lines (order_id text references orders deferrable initially deferred)');
  });
  beforeEach(async () => {
    await clear(database);
    proxy = await startPostgresProxy(database.url);
    pool = quietPool(proxy.url(database.url), poolOptions);
    outbox = createOutbox<pg.PoolClient>({ db: fromPg(pool), notify: false });
  });
  afterEach(async () => {
    // A test that failed may hold a client for ever.
    await Promise.race([pool.end(), sleep(1_000, undefined, { ref: false })]);
    await proxy.close();
  });
  afterAll(() => database.close());

  return {
    get database() {
      return database;
    },
    get proxy() {
      return proxy;
    },
    get pool() {
      return pool;
    },
    get outbox() {
      return outbox;
    },
  };
}

/** After every outcome: a pool of one has its client back, in its own mode and outside of any transaction. */
export async function expectUsable(pool: pg.Pool): Promise<void> {
  expect(pool.waitingCount).toBe(0);
  const client = await pool.connect();
  try {
    expect((client as { pipeline?: boolean }).pipeline).toBe(false);
    // In a transaction block that began earlier, this would be the time of its BEGIN.
    const { rows } = await client.query('select now() = statement_timestamp() as alone');
    expect(rows).toEqual([{ alone: true }]);
  } finally {
    client.release();
  }
}
