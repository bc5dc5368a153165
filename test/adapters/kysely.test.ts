import {
  CamelCasePlugin,
  CompiledQuery,
  Kysely,
  ParseJSONResultsPlugin,
  PostgresDialect,
  type Transaction,
} from 'kysely';
import { describe, expect, onTestFinished, test } from 'vitest';
import { fromKysely } from '../../src/adapters/kysely.ts';
import { createOutbox } from '../../src/index.ts';
import type { AdapterClient } from '../../src/testing/index.ts';
import { createTestDatabase } from '../support/database.ts';
import { createOrders, nothing, one, orderCreated, written } from '../support/orders.ts';
import { quietPool } from '../support/quiet-pool.ts';
import { deferred } from '../support/wait.ts';
import { runAdapterConformance } from './run-conformance.ts';

interface Tables {
  orders: { id: string };
}

const connectTo = (url: string) =>
  new Kysely<Tables>({ dialect: new PostgresDialect({ pool: quietPool(url, { max: 5 }) }) });

async function connect(connectionString: string): Promise<AdapterClient<Transaction<Tables>>> {
  const db = connectTo(connectionString);
  const held = deferred<Kysely<Tables>>();
  const released = deferred();
  const holding = db.connection().execute((connection) => {
    held.resolve(connection);
    return released.promise;
  });
  return {
    db: fromKysely(db),
    transaction: (work, { isolation } = {}) => {
      const builder = db.transaction();
      return (isolation ? builder.setIsolationLevel(isolation) : builder).execute(work);
    },
    query: (trx, text, values = []) => trx.executeQuery(CompiledQuery.raw(text, values)),
    notTransactions: {
      'the Kysely instance': db,
      'with a plugin': db.withPlugin(new CamelCasePlugin()),
      'a single connection': await held.promise,
    },
    async close() {
      released.resolve();
      await holding;
      await db.destroy();
    },
  };
}

runAdapterConformance('fromKysely', connect);

describe('fromKysely', () => {
  async function scene() {
    const database = await createTestDatabase();
    await createOrders(database);
    const db = connectTo(database.url);
    onTestFinished(async () => {
      await db.destroy();
      await database.close();
    });
    return { database, db, outbox: createOutbox({ db: fromKysely(db), notify: false }) };
  }

  test('takes a controlled transaction and its savepoints', async () => {
    const { database, db, outbox } = await scene();
    const trx = await db.startTransaction().execute();
    await trx.insertInto('orders').values({ id: '1' }).execute();
    await outbox.emit(trx, orderCreated('1'));
    const after = await trx.savepoint('after').execute();
    await outbox.emit(after, orderCreated('2'));
    await after.rollbackToSavepoint('after').execute();
    await trx.commit().execute();
    expect(await written(database)).toEqual(one);
    await expect(outbox.emit(trx, orderCreated('1'))).rejects.toMatchObject({ code: 'POSTCOMMIT_E_NOT_A_TRANSACTION' });
  });

  test('an emit while COMMIT is on its way writes nothing', async () => {
    const { database, db, outbox } = await scene();
    for (const writesFirst of [false, true]) {
      const trx = await db.startTransaction().execute();
      if (writesFirst) await trx.insertInto('orders').values({ id: '1' }).execute();
      const committing = trx.commit().execute();
      await expect(outbox.emit(trx, orderCreated('1'))).rejects.toMatchObject({
        code: 'POSTCOMMIT_E_NOT_A_TRANSACTION',
      });
      await committing;
    }
    expect(await written(database)).toEqual({ ...nothing, orders: 1 });
  });

  test('one statement writes the event, if the transaction has written before', async () => {
    const { database } = await scene();
    const sent: string[] = [];
    const db = new Kysely<Tables>({
      dialect: new PostgresDialect({ pool: quietPool(database.url, { max: 1 }) }),
      log: ({ query }) => void sent.push(query.sql),
    });
    onTestFinished(() => db.destroy());
    const outbox = createOutbox({ db: fromKysely(db), notify: false });
    await db.transaction().execute(async (trx) => {
      await trx.insertInto('orders').values({ id: '1' }).execute();
      sent.length = 0;
      await outbox.emit(trx, orderCreated('1'));
      expect(sent).toHaveLength(1);
    });
    expect(await written(database)).toEqual(one);
  });

  test('plugins of the transaction make no difference', async () => {
    const { database, db } = await scene();
    const withPlugins = db.withPlugin(new CamelCasePlugin()).withPlugin(new ParseJSONResultsPlugin());
    const outbox = createOutbox({ db: fromKysely(withPlugins), notify: false });
    const id = await withPlugins.transaction().execute((trx) => outbox.emit(trx, orderCreated('1')));
    const found = await outbox.admin.find(id);
    expect(found).toMatchObject({ id, payload: { id: '1' } });
    expect((await written(database)).events).toBe(1);
  });

  test('names the mistake', async () => {
    const { db, outbox } = await scene();
    await expect(outbox.emit(db as unknown as Transaction<Tables>, orderCreated('1'))).rejects.toThrow(
      /Kysely instance.*db\.transaction\(\)\.execute\(\)/,
    );
    expect(() => fromKysely({} as Kysely<Tables>)).toThrow(/takes a Kysely instance/);
    // Before 0.28.11 the executor of a transaction is like that of the instance.
    await db.transaction().execute(async (trx) => {
      const older = Object.create(trx, { getExecutor: { value: () => db.getExecutor() } });
      await expect(outbox.emit(older, orderCreated('1'))).rejects.toThrow(/needs kysely 0\.28\.11 or later/);
    });
  });
});
