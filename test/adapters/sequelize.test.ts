import { Sequelize, type Transaction } from 'sequelize';
import { fromSequelize } from '../../src/adapters/sequelize.ts';
import type { AdapterClient } from '../../src/testing/index.ts';
import { runAdapterConformance } from './run-conformance.ts';

async function connect(connectionString: string): Promise<AdapterClient<Transaction>> {
  const sequelize = new Sequelize(connectionString, { logging: false, pool: { max: 6 } });
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
