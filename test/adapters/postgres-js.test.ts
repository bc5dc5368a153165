import { randomUUID } from 'node:crypto';
import postgres from 'postgres';
import { describe, expect, onTestFinished, test } from 'vitest';
import { fromPostgresJs } from '../../src/adapters/postgres-js.ts';
import { createInbox, createOutbox } from '../../src/index.ts';
import type { AdapterClient } from '../../src/testing/index.ts';
import { createTestDatabase } from '../support/database.ts';
import { createOrders, nothing, one, orderCreated, written } from '../support/orders.ts';
import { testChangedRows } from './changed-rows.ts';
import { countNotifications } from './notifications.ts';
import { runAdapterConformance } from './run-conformance.ts';
import { testStalledServer } from './stalled-server.ts';

const connectTo = (url: string, options: postgres.Options<Record<string, never>> = {}) =>
  postgres(url, { max: 5, onnotice: () => {}, ...options });

async function connect(connectionString: string): Promise<AdapterClient<postgres.TransactionSql>> {
  const sql = connectTo(connectionString);
  const reserved = await sql.reserve();
  return {
    db: fromPostgresJs(sql),
    transaction: async (work, { isolation } = {}) =>
      (await (isolation ? sql.begin(`isolation level ${isolation}`, work) : sql.begin(work))) as never,
    query: async (tx, text, values) => tx.unsafe(text, values),
    nested: async (tx, work) => (await tx.savepoint(work)) as never,
    notTransactions: { 'the sql object': sql, 'a reserved connection': reserved },
    async close() {
      reserved.release();
      await sql.end({ timeout: 1 });
    },
  };
}

runAdapterConformance('fromPostgresJs', connect);
testStalledServer('fromPostgresJs', (url) => {
  const sql = connectTo(url, { connect_timeout: 1 });
  return { db: fromPostgresJs(sql), close: () => sql.end({ timeout: 1 }) };
});
testChangedRows('fromPostgresJs with transform', (url) => {
  const sql = connectTo(url, { transform: postgres.pascal as never });
  return { db: fromPostgresJs(sql), close: () => sql.end({ timeout: 1 }) };
});

describe('fromPostgresJs', () => {
  async function scene(options?: postgres.Options<Record<string, never>>) {
    const database = await createTestDatabase();
    await createOrders(database);
    const sql = connectTo(database.url, options);
    onTestFinished(async () => {
      await sql.end({ timeout: 1 });
      await database.close();
    });
    return { database, sql, outbox: createOutbox({ db: fromPostgresJs(sql), notify: false }) };
  }

  test('an emit that was not awaited is written with the transaction or not at all', async () => {
    const { database, sql, outbox } = await scene();
    let emitted: Promise<unknown> = Promise.resolve();
    await sql.begin(async () => {});
    await sql.begin(async (tx) => {
      await tx`insert into orders (id) values ('1')`;
      emitted = outbox.emit(tx, orderCreated('1')).catch((error) => error.code);
    });
    const outcome = await emitted;
    const expected = outcome === 'POSTCOMMIT_E_NOT_A_TRANSACTION' ? { ...nothing, orders: 1 } : one;
    expect(await written(database)).toEqual(expected);
  });

  test('begin takes a list of queries, and options, as before', async () => {
    const { database, sql } = await scene();
    const results = await sql.begin((tx) => [
      tx`insert into orders (id) values ('1') returning id`,
      tx`insert into orders (id) values ('2') returning id`,
    ]);
    expect(results.map(([row]) => row?.id)).toEqual(['1', '2']);
    const readOnly = sql.begin('read only', (tx) => tx`insert into orders (id) values ('3')`);
    await expect(readOnly).rejects.toMatchObject({ code: '25006' });
    expect((await written(database)).orders).toBe(2);
    const thrown = new Error('at once');
    await expect(
      sql.begin(() => {
        throw thrown;
      }),
    ).rejects.toBe(thrown);
  });

  test('several outboxes of one client, and a second copy of the package, know its transactions', async () => {
    const { database, sql, outbox } = await scene();
    const second = createOutbox({ db: fromPostgresJs(sql), notify: false });
    const copy: typeof import('../../src/adapters/postgres-js.ts') = await import(
      `${new URL('../../src/adapters/postgres-js.ts', import.meta.url).href}?copy`
    );
    const third = createOutbox({ db: copy.fromPostgresJs(sql), notify: false });
    await sql.begin(async (tx) => {
      for (const each of [outbox, second, third]) await each.emit(tx, orderCreated('1'));
    });
    expect((await written(database)).events).toBe(3);
  });

  test('names the mistake', async () => {
    const { sql, outbox } = await scene();
    const emit = (tx: unknown) => outbox.emit(tx as postgres.TransactionSql, orderCreated('1'));
    await expect(emit(sql)).rejects.toThrow(/sql object itself.*sql\.begin\(\)/);
    const { tx } = await sql.begin(async (tx) => ({ tx }));
    await expect(emit(tx)).rejects.toThrow(/has ended/);
    expect(() => fromPostgresJs({} as typeof sql)).toThrow(/what postgres\(\) returns/);
  });

  test('without prepared statements it works too', async () => {
    const { database, sql, outbox } = await scene({ prepare: false });
    await sql.begin(async (tx) => {
      await tx`insert into orders (id) values ('1')`;
      await outbox.emit(tx, orderCreated('1'));
    });
    expect(await written(database)).toEqual(one);
  });

  test('a connection that is lost in the work of the inbox does not end the process', async () => {
    const { sql } = await scene();
    const inbox = createInbox({ db: fromPostgresJs(sql) });
    const uncaught: unknown[] = [];
    const note = (error: unknown) => void uncaught.push(error);
    process.on('uncaughtException', note);
    onTestFinished(() => void process.off('uncaughtException', note));
    // The inbox gets the error as early as possible: before sql.begin() has told that its connection is lost.
    const lost = inbox.transaction({ consumer: 'billing', eventId: randomUUID() }, (tx) =>
      tx.unsafe('select pg_terminate_backend(pg_backend_pid())'),
    );
    await expect(lost).rejects.toMatchObject({ code: 'POSTCOMMIT_E_DATABASE_UNREACHABLE' });
    await new Promise((resolve) => setImmediate(resolve));
    await sql`select 1`;
    expect(uncaught).toEqual([]);
  });

  test('a client that was ended says so', async () => {
    const { sql, outbox } = await scene();
    await sql.end();
    await expect(outbox.transaction(async () => {})).rejects.toMatchObject({ code: 'POSTCOMMIT_E_CLIENT_CLOSED' });
  });

  test('relays are notified after the commit, once', async () => {
    const { sql } = await scene();
    const outbox = createOutbox({ db: fromPostgresJs(sql) });
    const notifications = countNotifications();
    await sql.begin(async (tx) => {
      await outbox.emit(tx, orderCreated('1'));
      await tx.savepoint((inner) => outbox.emit(inner, orderCreated('1')));
      expect(notifications()).toBe(0);
    });
    expect(notifications()).toBe(1);
  });
});
