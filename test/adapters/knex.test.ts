import knex, { type Knex } from 'knex';
import { describe, expect, onTestFinished, test } from 'vitest';
import { fromKnex } from '../../src/adapters/knex.ts';
import { createOutbox } from '../../src/index.ts';
import type { AdapterClient } from '../../src/testing/index.ts';
import { createTestDatabase } from '../support/database.ts';
import { createOrders, nothing, one, orderCreated, written } from '../support/orders.ts';
import { renamed, testChangedRows } from './changed-rows.ts';
import { countNotifications } from './notifications.ts';
import { runAdapterConformance } from './run-conformance.ts';
import { testStalledServer } from './stalled-server.ts';

const connectTo = (connection: string, options: Knex.Config = {}) =>
  knex({ client: 'pg', connection, pool: { min: 0, max: 4 }, ...options });

/** As users of Knex write it. */
const bound = (text: string) => text.replace(/\$\d+/g, '?');

async function connect(connectionString: string): Promise<AdapterClient<Knex.Transaction>> {
  const db = connectTo(connectionString);
  return {
    db: fromKnex(db),
    transaction: (work, { isolation } = {}) =>
      db.transaction(work, isolation ? { isolationLevel: isolation } : undefined),
    query: async (trx, text, values = []) => trx.raw(bound(text), values),
    nested: (trx, work) => trx.transaction(work),
    notTransactions: { 'the knex instance': db, 'a clone of it': db.withUserParams({}) },
    close: () => db.destroy(),
  };
}

runAdapterConformance('fromKnex', connect);
testStalledServer('fromKnex', (url) => {
  const db = connectTo(url, { acquireConnectionTimeout: 300 });
  return { db: fromKnex(db), close: () => db.destroy() };
});
const hooks: Record<string, (result: { rows: object[] }) => unknown> = {
  'renames columns': (result) => ({ ...result, rows: result.rows?.map(renamed) }),
  'passes on the rows alone': ({ rows }) => rows,
  'does both': ({ rows }) => rows?.map(renamed),
};
for (const [name, postProcessResponse] of Object.entries(hooks)) {
  testChangedRows(`fromKnex with a postProcessResponse that ${name}`, (url) => {
    const db = connectTo(url, { postProcessResponse });
    return { db: fromKnex(db), close: () => db.destroy() };
  });
}

describe('fromKnex', () => {
  async function scene(options?: Knex.Config) {
    const database = await createTestDatabase();
    await createOrders(database);
    const db = connectTo(database.url, options);
    onTestFinished(async () => {
      await db.destroy();
      await database.close();
    });
    return { database, db, outbox: createOutbox({ db: fromKnex(db), notify: false }) };
  }

  test('takes a transaction that is committed by hand', async () => {
    const { database, db, outbox } = await scene();
    const trx = await db.transaction();
    await trx('orders').insert({ id: '1' });
    await outbox.emit(trx, orderCreated('1'));
    await trx.commit();
    expect(await written(database)).toEqual(one);
    await expect(outbox.emit(trx, orderCreated('1'))).rejects.toThrow(/has ended/);
  });

  test('an emit while COMMIT is on its way is refused', async () => {
    const { database, db, outbox } = await scene();
    const trx = await db.transaction();
    const committing = trx.commit();
    await expect(outbox.emit(trx, orderCreated('1'))).rejects.toMatchObject({ code: 'POSTCOMMIT_E_NOT_A_TRANSACTION' });
    await committing;
    expect(await written(database)).toEqual(nothing);
  });

  test('an emit that was not awaited is written with the transaction or not at all', async () => {
    const { database, db, outbox } = await scene();
    let emitted: Promise<unknown> = Promise.resolve();
    await db.transaction(async (trx) => {
      await trx('orders').insert({ id: '1' });
      emitted = outbox.emit(trx, orderCreated('1')).catch((error) => error.code);
    });
    const outcome = await emitted;
    const expected = outcome === 'POSTCOMMIT_E_NOT_A_TRANSACTION' ? { ...nothing, orders: 1 } : one;
    expect(await written(database)).toEqual(expected);
  });

  test('names the mistake', async () => {
    const { db, outbox } = await scene();
    await expect(outbox.emit(db as unknown as Knex.Transaction, orderCreated('1'))).rejects.toThrow(
      /knex instance.*knex\.transaction\(\)/,
    );
    expect(() => fromKnex({} as Knex)).toThrow(/what knex\(\) returns/);
    await db.transaction(async (trx) => {
      expect(() => fromKnex(trx)).toThrow(/this is a transaction/);
    });
  });

  test('takes a transaction of a clone of the instance', async () => {
    const { database, db, outbox } = await scene();
    await db.withUserParams({ tenant: 1 }).transaction(async (trx) => {
      await trx('orders').insert({ id: '1' });
      await outbox.emit(trx, orderCreated('1'));
    });
    expect(await written(database)).toEqual(one);
  });

  test('relays are notified after the commit', async () => {
    const { db } = await scene();
    const outbox = createOutbox({ db: fromKnex(db) });
    const notifications = countNotifications();
    await db.transaction(async (trx) => {
      await trx.transaction((inner) => outbox.emit(inner, orderCreated('1')));
      expect(notifications()).toBe(0);
    });
    await expect.poll(notifications).toBe(1);
  });
});
