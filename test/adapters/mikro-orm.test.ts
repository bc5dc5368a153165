import * as mikroOrm6 from '@mikro-orm/postgresql';
import type pg from 'pg';
import { fromMikroOrm } from '../../src/adapters/mikro-orm.ts';
import type { AdapterClient } from '../../src/testing/index.ts';
import * as mikroOrm7 from './mikro-orm7/node_modules/@mikro-orm/postgresql/index.js';
import { endingConnections } from './pool-ends.ts';
import { runAdapterConformance } from './run-conformance.ts';

type EntityManager = mikroOrm6.MikroORM['em'];

function harness({ EntitySchema, MikroORM }: typeof mikroOrm6) {
  return async (connectionString: string): Promise<AdapterClient<EntityManager>> => {
    const order = new EntitySchema<{ id: string }>({
      name: 'ConformanceOrder',
      tableName: 'conformance_orders',
      properties: { id: { type: 'text', primary: true } },
    });
    let end = async () => {};
    const orm = await MikroORM.init({
      entities: [order],
      clientUrl: connectionString,
      pool: { min: 0, max: 6 },
      // Only MikroORM 7 calls it.
      driverOptions: {
        onPoolCreated: (pool: pg.Pool) => {
          end = endingConnections(pool);
        },
      },
    });
    return {
      db: fromMikroOrm(orm),
      transaction: (work, { isolation } = {}) =>
        orm.em.fork().transactional(work, isolation ? { isolationLevel: isolation as mikroOrm6.IsolationLevel } : {}),
      query: (em, text, values = []) =>
        em.getConnection().execute(text.replace(/\$\d+/g, '?'), values, 'all', em.getTransactionContext()),
      nested: (em, work) => em.transactional(work),
      notTransactions: {
        'the EntityManager of the MikroORM object': orm.em,
        'a fork': orm.em.fork(),
        'the MikroORM object': orm,
      },
      async close() {
        await end();
        await orm.close(true).catch(() => {});
      },
    };
  };
}

runAdapterConformance('fromMikroOrm with MikroORM 6', harness(mikroOrm6));
runAdapterConformance('fromMikroOrm with MikroORM 7', harness(mikroOrm7 as unknown as typeof mikroOrm6));
