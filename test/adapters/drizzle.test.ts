import { type ExtractTablesWithRelations, sql } from 'drizzle-orm';
import { drizzle as drizzlePg } from 'drizzle-orm/node-postgres';
import type { PgDatabase, PgQueryResultHKT, PgTransaction } from 'drizzle-orm/pg-core';
import { drizzle as drizzlePostgresJs } from 'drizzle-orm/postgres-js';
import postgres from 'postgres';
import { describe, expect, onTestFinished, test } from 'vitest';
import { fromDrizzle } from '../../src/adapters/drizzle.ts';
import { createOutbox } from '../../src/index.ts';
import type { AdapterClient } from '../../src/testing/index.ts';
import { createTestDatabase } from '../support/database.ts';
import { createOrders, nothing, one, orderCreated, written } from '../support/orders.ts';
import { quietPool } from '../support/quiet-pool.ts';
import { countNotifications } from './notifications.ts';
import { endingConnections } from './pool-ends.ts';
import { runAdapterConformance } from './run-conformance.ts';

type Db = PgDatabase<PgQueryResultHKT, Record<string, never>>;
type Tx = PgTransaction<PgQueryResultHKT, Record<string, never>, ExtractTablesWithRelations<Record<string, never>>>;

interface Opened {
  db: Db;
  /** What the driver itself offers. */
  driver: Record<string, unknown>;
  close(): Promise<void>;
}

const drivers: Record<string, (url: string) => Promise<Opened>> = {
  'node-postgres': async (url) => {
    const pool = quietPool(url, { max: 4 });
    // Drizzle does not give a connection back on which BEGIN has failed.
    const close = endingConnections(pool);
    return { db: drizzlePg(pool) as unknown as Db, driver: { 'the pool': pool }, close };
  },
  'postgres.js': async (url) => {
    const client = postgres(url, { max: 4, onnotice: () => {} });
    return {
      db: drizzlePostgresJs(client) as unknown as Db,
      driver: { 'the sql object': client },
      close: () => client.end({ timeout: 1 }),
    };
  },
};

test.each(['commit', 'rollback'])(
  'a transaction of node-postgres that raw SQL has ended is refused: %s',
  async (end) => {
    const database = await createTestDatabase();
    await createOrders(database);
    const pool = quietPool(database.url);
    onTestFinished(async () => {
      await pool.end();
      await database.close();
    });
    const db = drizzlePg(pool) as unknown as Db;
    const outbox = createOutbox({ db: fromDrizzle(db), notify: false });
    const ended = db.transaction(async (tx) => {
      await tx.execute(sql`insert into orders (id) values ('1')`);
      await tx.execute(sql.raw(end));
      await outbox.emit(tx, orderCreated('1'));
    });
    await expect(ended).rejects.toMatchObject({ code: 'POSTCOMMIT_E_NOT_A_TRANSACTION' });
    expect(await written(database)).toEqual(end === 'commit' ? { ...nothing, orders: 1 } : nothing);
  },
);

test('a transaction that an old Drizzle runs on a pool is refused', async () => {
  const database = await createTestDatabase();
  const pool = quietPool(database.url);
  onTestFinished(async () => {
    await pool.end();
    await database.close();
  });
  // What versions before 0.45.1 make of a pool of another copy of pg: they take it for a client.
  const disguised = Object.create(pool);
  Object.setPrototypeOf(disguised, Object.create(pool, { constructor: { value: class Client {} } }));
  const db = drizzlePg(disguised) as unknown as Db;
  const outbox = createOutbox({ db: fromDrizzle(db), notify: false });
  const emitted = db.transaction((tx) => outbox.emit(tx, orderCreated('1')));
  await expect(emitted).rejects.toThrow(/another copy of pg.*0\.45\.1 or later/);
  expect(await database.query('select from postcommit.outbox_events')).toEqual([]);
});

/** A statement with `$n`, as Drizzle takes it. */
function statement(text: string, values: readonly string[]) {
  const parts = text.split(/\$\d+/);
  return sql.join(parts.flatMap((part, n) => (n === 0 ? [sql.raw(part)] : [sql.param(values[n - 1]), sql.raw(part)])));
}

for (const [name, open] of Object.entries(drivers)) {
  const connect = async (connectionString: string): Promise<AdapterClient<Tx>> => {
    const { db, driver, close } = await open(connectionString);
    return {
      db: fromDrizzle(db),
      transaction: (work, { isolation } = {}) =>
        db.transaction(work, isolation ? { isolationLevel: isolation } : undefined),
      query: async (tx, text, values = []) => tx.execute(statement(text, values)),
      nested: (tx, work) => tx.transaction(work),
      notTransactions: { 'the database': db, ...driver },
      close,
    };
  };
  runAdapterConformance(`fromDrizzle, ${name}`, connect);

  describe(`fromDrizzle, ${name}`, () => {
    async function scene() {
      const database = await createTestDatabase();
      await createOrders(database);
      const { db, close } = await open(database.url);
      onTestFinished(async () => {
        await close();
        await database.close();
      });
      return { database, db, outbox: createOutbox({ db: fromDrizzle(db), notify: false }) };
    }

    test('an emit that was not awaited is written with the transaction or not at all', async () => {
      const { database, db, outbox } = await scene();
      let emitted: Promise<unknown> = Promise.resolve();
      await db.transaction(async (tx) => {
        await tx.execute(sql`insert into orders (id) values ('1')`);
        emitted = outbox.emit(tx, orderCreated('1')).catch((error) => error.code);
      });
      const outcome = await emitted;
      const expected = outcome === 'POSTCOMMIT_E_NOT_A_TRANSACTION' ? { ...nothing, orders: 1 } : one;
      expect(await written(database)).toEqual(expected);
    });

    test('tx.rollback() rolls the event back', async () => {
      const { database, db, outbox } = await scene();
      const failed = db.transaction(async (tx) => {
        await outbox.emit(tx, orderCreated('1'));
        tx.rollback();
      });
      await expect(failed).rejects.toThrow(/Rollback/);
      expect(await written(database)).toEqual(nothing);
    });

    test('several outboxes of one database know its transactions', async () => {
      const { database, db, outbox } = await scene();
      const second = createOutbox({ db: fromDrizzle(db), notify: false });
      await db.transaction(async (tx) => {
        for (const each of [outbox, second]) await each.emit(tx, orderCreated('1'));
      });
      expect((await written(database)).events).toBe(2);
    });

    test('relays are notified after the commit, once', async () => {
      const { db } = await scene();
      const outbox = createOutbox({ db: fromDrizzle(db) });
      const notifications = countNotifications();
      await db.transaction(async (tx) => {
        await outbox.emit(tx, orderCreated('1'));
        await tx.transaction((inner) => outbox.emit(inner, orderCreated('1')));
        expect(notifications()).toBe(0);
      });
      expect(notifications()).toBe(1);
    });

    test('names the mistake', async () => {
      const { db, outbox } = await scene();
      await expect(outbox.emit(db as unknown as Tx, orderCreated('1'))).rejects.toThrow(
        /Drizzle database.*db\.transaction\(\)/,
      );
      expect(() => fromDrizzle({} as Db)).toThrow(/what drizzle\(\) returns/);
      expect(() => fromDrizzle({ transaction: db.transaction } as unknown as Db)).toThrow(/needs drizzle-orm/);
      await db.transaction(async (tx) => {
        expect(() => fromDrizzle(tx)).toThrow(/this is a transaction/);
      });
    });
  });
}
