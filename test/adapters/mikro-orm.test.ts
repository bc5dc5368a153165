import { createRequire } from 'node:module';
import * as mikroOrm6 from '@mikro-orm/postgresql';
import pg from 'pg';
import { describe, expect, test } from 'vitest';
import { fromMikroOrm } from '../../src/adapters/mikro-orm.ts';
import type { AdapterClient } from '../../src/testing/index.ts';
import { insertOrder, nothing, one, orderCreated, written } from '../support/orders.ts';
import * as mikroOrm7 from './mikro-orm7/node_modules/@mikro-orm/postgresql/index.js';
import { ormScene, runOrmChecks } from './orm-checks.ts';
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

const pg7: typeof pg = createRequire(new URL('mikro-orm7/', import.meta.url))('pg');
const harness6 = harness(mikroOrm6);
const harness7 = harness(mikroOrm7 as unknown as typeof mikroOrm6);

runAdapterConformance('fromMikroOrm with MikroORM 6', harness6);
runAdapterConformance('fromMikroOrm with MikroORM 7', harness7);
runOrmChecks('fromMikroOrm with MikroORM 6', harness6, pg);
// Kysely, on which MikroORM 7 is built, does not tell the state of its connection.
runOrmChecks('fromMikroOrm with MikroORM 7', harness7, pg7, { seesRawCommit: false });

test('fromMikroOrm with MikroORM 7 refuses a transaction that it has not seen begin', async () => {
  const { client, database, outbox } = await ormScene(harness7);
  const fork = (client.notTransactions['a fork'] as EntityManager).fork({ freshEventManager: true });
  const emitted = fork.transactional((em) => outbox.emit(em as EntityManager, orderCreated('1')));
  await expect(emitted).rejects.toMatchObject({
    code: 'POSTCOMMIT_E_NOT_A_TRANSACTION',
    message: expect.stringMatching(/not seen this transaction begin.*freshEventManager.*em\.transactional/),
  });
  expect(await written(database)).toEqual(nothing);
});

describe.each([
  ['6', harness6],
  ['7', harness7],
])('fromMikroOrm with MikroORM %s', (_version, connect) => {
  test.each([
    ['the event manager of the MikroORM object', false],
    ['an event manager of its own', true],
  ])(
    'refuses a nested transaction whose outer one has ended, whose connection is in another, with %s',
    async (_, own) => {
      const { client, database, outbox } = await ormScene(connect);
      let kept: EntityManager | undefined;
      const fork = (client.notTransactions['a fork'] as EntityManager).fork({ freshEventManager: own });
      await fork.transactional((em) =>
        em.transactional(async (inner) => {
          kept = inner as EntityManager;
        }),
      );
      const refused: unknown[] = [];
      await Promise.all(
        Array.from({ length: 6 }, () =>
          client.transaction(async (em) => {
            await client.query(em, 'select 1');
            refused.push(await outbox.emit(kept as EntityManager, orderCreated('1')).catch((error) => error.code));
          }),
        ),
      );
      expect(refused).toEqual(Array(6).fill('POSTCOMMIT_E_NOT_A_TRANSACTION'));
      expect(await written(database)).toEqual(nothing);
    },
  );

  test('takes a transaction that is opened with em.begin()', async () => {
    const { client, database, outbox } = await ormScene(connect);
    const em = (client.notTransactions['a fork'] as EntityManager).fork();
    await em.begin();
    await client.query(em, insertOrder, ['1']);
    await outbox.emit(em, orderCreated('1'));
    await em.commit();
    expect(await written(database)).toEqual(one);
    await expect(outbox.emit(em, orderCreated('1'))).rejects.toMatchObject({ code: 'POSTCOMMIT_E_NOT_A_TRANSACTION' });
  });

  test('finds the current transaction of the global EntityManager', async () => {
    const { client, database, outbox } = await ormScene(connect);
    const em = client.notTransactions['the EntityManager of the MikroORM object'] as EntityManager;
    await em.transactional(async (inner) => {
      await client.query(inner, insertOrder, ['1']);
      await outbox.emit(em, orderCreated('1'));
    });
    expect(await written(database)).toEqual(one);
  });

  test('names the mistake', async () => {
    const { client, outbox } = await ormScene(connect);
    const em = client.notTransactions['a fork'] as EntityManager;
    await expect(outbox.emit(em, orderCreated('1'))).rejects.toThrow(/not in a transaction.*em\.transactional/);
    expect(() => fromMikroOrm({} as mikroOrm6.MikroORM)).toThrow(/MikroORM\.init/);
    expect(() => fromMikroOrm({ em })).toThrow(
      expect.objectContaining({
        code: 'POSTCOMMIT_E_PACKAGE_TOO_OLD',
        message: expect.stringContaining('MikroORM 6.0.0'),
      }),
    );
  });
});
