import { DataSource } from 'typeorm';
import type { TypeOrmDataSource, TypeOrmEntityManager } from '../../src/adapters/typeorm.ts';
import { fromTypeOrm } from '../../src/adapters/typeorm.ts';
import type { AdapterClient } from '../../src/testing/index.ts';
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

runAdapterConformance('fromTypeOrm with TypeORM 1', harness(DataSource));
runAdapterConformance('fromTypeOrm with TypeORM 0.3', harness(DataSource03 as unknown as typeof DataSource));
