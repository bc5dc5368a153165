import { createRequire } from 'node:module';
import pg from 'pg';
import { DataSource } from 'typeorm';
import { describe, expect, test } from 'vitest';
import type { TypeOrmDataSource, TypeOrmEntityManager } from '../../src/adapters/typeorm.ts';
import { fromTypeOrm } from '../../src/adapters/typeorm.ts';
import type { AdapterClient } from '../../src/testing/index.ts';
import { orderCreated } from '../support/orders.ts';
import { ormScene, runOrmChecks } from './orm-checks.ts';
import { runAdapterConformance } from './run-conformance.ts';
import { DataSource as DataSource03 } from './typeorm03/node_modules/typeorm/index.js';

/** What the suite calls, in both versions. */
interface Manager extends TypeOrmEntityManager {
  query(text: string, values?: string[]): Promise<unknown>;
  transaction<T>(work: (manager: Manager) => Promise<T>): Promise<T>;
}
interface Source extends TypeOrmDataSource<Manager> {
  transaction<T>(work: (manager: Manager) => Promise<T>): Promise<T>;
  transaction<T>(isolation: string, work: (manager: Manager) => Promise<T>): Promise<T>;
  initialize(): Promise<unknown>;
  destroy(): Promise<void>;
  createQueryRunner(): { manager: Manager; connect(): Promise<unknown>; release(): Promise<void> };
}

function harness(DataSourceClass: typeof DataSource) {
  return async (connectionString: string): Promise<AdapterClient<Manager>> => {
    const options = { type: 'postgres', url: connectionString, poolSize: 6, poolErrorHandler: () => {} } as const;
    const dataSource = new DataSourceClass(options) as unknown as Source;
    await dataSource.initialize();
    const runner = dataSource.createQueryRunner();
    await runner.connect();
    return {
      db: fromTypeOrm(dataSource),
      transaction: (work, { isolation } = {}) =>
        isolation ? dataSource.transaction(isolation.toUpperCase(), work) : dataSource.transaction(work),
      query: (manager, text, values) => manager.query(text, values),
      nested: (manager, work) => manager.transaction(work),
      notTransactions: {
        'the DataSource': dataSource,
        'the manager of the DataSource': dataSource.manager,
        'a QueryRunner': runner,
        'the manager of a QueryRunner outside of a transaction': runner.manager,
      },
      async close() {
        await runner.release();
        await dataSource.destroy();
      },
    };
  };
}

const pg03: typeof pg = createRequire(new URL('typeorm03/', import.meta.url))('pg');

for (const [name, open, driver] of [
  ['fromTypeOrm with TypeORM 1', harness(DataSource), pg],
  ['fromTypeOrm with TypeORM 0.3', harness(DataSource03 as unknown as typeof DataSource), pg03],
] as const) {
  runAdapterConformance(name, open);
  // TypeORM notices that the connection is lost, and does not send COMMIT.
  runOrmChecks(name, open, driver);
}

describe('fromTypeOrm', () => {
  test('takes the manager of a QueryRunner, and refuses it before and after the transaction', async () => {
    const { client, database, outbox } = await ormScene(harness(DataSource));
    const runner = client.notTransactions['a QueryRunner'] as ReturnType<DataSource['createQueryRunner']>;
    const manager = runner.manager as unknown as Manager;
    await runner.startTransaction();
    await outbox.emit(manager, orderCreated('1'));
    await runner.commitTransaction();
    expect(await database.query('select from postcommit.outbox_events')).toHaveLength(1);
    await expect(outbox.emit(manager, orderCreated('1'))).rejects.toThrow(/not in an open transaction/);
    await expect(outbox.emit(runner as unknown as Manager, orderCreated('1'))).rejects.toThrow(/queryRunner\.manager/);
  });

  test('names the mistake', async () => {
    const { client, outbox } = await ormScene(harness(DataSource));
    const root = client.notTransactions['the manager of the DataSource'] as Manager;
    await expect(outbox.emit(root, orderCreated('1'))).rejects.toThrow(/dataSource\.transaction\(async \(manager\)/);
    expect(() => fromTypeOrm({} as DataSource)).toThrow(/takes a DataSource/);
    const source = { '@instanceof': Symbol.for('DataSource'), transaction() {}, query() {} };
    expect(() => fromTypeOrm({ ...source, options: { type: 'mysql' } } as unknown as DataSource)).toThrow(
      /type postgres.*mysql/,
    );
    const connection = { options: { type: 'postgres' }, transaction() {}, query() {} } as unknown as DataSource;
    expect(() => fromTypeOrm(connection)).toThrow(
      expect.objectContaining({
        code: 'POSTCOMMIT_E_PACKAGE_TOO_OLD',
        message: expect.stringContaining('typeorm 0.3.0'),
      }),
    );
  });
});
