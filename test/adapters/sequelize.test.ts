import pg from 'pg';
import { Sequelize, type Transaction } from 'sequelize';
import { describe, expect, onTestFinished, test } from 'vitest';
import { fromSequelize } from '../../src/adapters/sequelize.ts';
import { createOutbox } from '../../src/index.ts';
import type { AdapterClient } from '../../src/testing/index.ts';
import { createTestDatabase } from '../support/database.ts';
import { createOrders, insertOrder, nothing, one, orderCreated, written } from '../support/orders.ts';
import { runOrmChecks } from './orm-checks.ts';
import { runAdapterConformance } from './run-conformance.ts';
import { testStalledServer } from './stalled-server.ts';

const open = (connectionString: string) => new Sequelize(connectionString, { logging: false, pool: { max: 6 } });

async function connect(connectionString: string): Promise<AdapterClient<Transaction>> {
  const sequelize = open(connectionString);
  return {
    db: fromSequelize(sequelize),
    transaction: (work, { isolation } = {}) =>
      sequelize.transaction({ ...(isolation && { isolationLevel: isolation.toUpperCase() as never }) }, work),
    query: (transaction, text, values) => sequelize.query(text, { transaction, ...(values && { bind: values }) }),
    nested: (transaction, work) => sequelize.transaction({ transaction }, work),
    notTransactions: { 'the Sequelize object': sequelize },
    close: () => sequelize.close(),
  };
}

runAdapterConformance('fromSequelize', connect);
runOrmChecks('fromSequelize', connect, pg);
testStalledServer('fromSequelize', (url) => {
  const sequelize = new Sequelize(url, { logging: false, pool: { max: 6, acquire: 300 } });
  return { db: fromSequelize(sequelize), close: () => sequelize.close() };
});

describe('fromSequelize', () => {
  async function scene() {
    const database = await createTestDatabase();
    await createOrders(database);
    const sequelize = open(database.url);
    onTestFinished(async () => {
      await sequelize.close();
      await database.close();
    });
    return { database, sequelize, outbox: createOutbox({ db: fromSequelize(sequelize), notify: false }) };
  }

  test('takes a transaction that is committed by hand', async () => {
    const { database, sequelize, outbox } = await scene();
    const transaction = await sequelize.transaction();
    await sequelize.query(insertOrder, { transaction, bind: ['1'] });
    await outbox.emit(transaction, orderCreated('1'));
    await transaction.commit();
    expect(await written(database)).toEqual(one);
    await expect(outbox.emit(transaction, orderCreated('1'))).rejects.toThrow(/has ended \(commit\)/);
  });

  test('refuses a nested transaction whose outer one has ended, whose connection is in another', async () => {
    const { database, sequelize, outbox } = await scene();
    const outer = await sequelize.transaction();
    const inner = await sequelize.transaction({ transaction: outer });
    await outer.rollback();
    const others = await Promise.all(Array.from({ length: 6 }, () => sequelize.transaction()));
    await expect(outbox.emit(inner, orderCreated('1'))).rejects.toMatchObject({
      code: 'POSTCOMMIT_E_NOT_A_TRANSACTION',
    });
    for (const other of others) await other.commit();
    expect(await written(database)).toEqual(nothing);
  });

  test('names the mistake', async () => {
    const { sequelize, outbox } = await scene();
    await expect(outbox.emit(sequelize as never, orderCreated('1'))).rejects.toThrow(/sequelize\.transaction\(async/);
    expect(() => fromSequelize({} as Sequelize)).toThrow(/takes a Sequelize object/);
    const of = (version: string, dialect: string) => ({
      transaction: async () => {},
      connectionManager: { getConnection: async () => {} },
      getDialect: () => dialect,
      constructor: { version },
    });
    expect(() => fromSequelize(of('6.37.8', 'mysql'))).toThrow(/needs the dialect postgres.*mysql/);
    expect(() => fromSequelize(of('5.22.5', 'postgres'))).toThrow(
      expect.objectContaining({
        code: 'POSTCOMMIT_E_PACKAGE_TOO_OLD',
        message: expect.stringContaining('This is sequelize 5.22.5, and 6.0.0 or later is needed.'),
      }),
    );
  });
});
