import pg from 'pg';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { createOutbox, fromPg, type Outbox } from '../../src/index.ts';
import { createTestDatabase, type TestDatabase } from '../support/database.ts';
import { clear, createOrders, insertOrder, nothing, one, orderCreated, written } from '../support/orders.ts';

type Refusal = { error: Error; isFor(text: unknown): boolean };

/** A client of another copy of pg: its `Query` class is its own, and it fails what it is told to without sending it. */
function clientThatRefuses(refusal: Refusal): typeof pg.Client {
  return class extends pg.Client {
    static Query = class extends pg.Query {};
    // biome-ignore lint/suspicious/noExplicitAny: pg's own query has more overloads than a structural type can follow.
    override query(...args: any[]): any {
      const [given] = args;
      if (refusal.isFor(given)) {
        if (typeof given.submit !== 'function') return Promise.reject(refusal.error);
        process.nextTick(() => given.handleError(refusal.error));
        return given;
      }
      return (super.query as (...args: unknown[]) => unknown)(...args);
    }
  };
}

const isBatch = (given: unknown) => typeof (given as { submit?: unknown }).submit === 'function';

describe('a version of pg that does not send what it is given', () => {
  let database: TestDatabase;
  let pool: pg.Pool;

  beforeAll(async () => {
    database = await createTestDatabase();
    await createOrders(database);
  });
  beforeEach(() => clear(database));
  afterEach(() => pool.end());
  afterAll(() => database.close());

  function outboxOn(refusal: Refusal): Outbox<pg.PoolClient> {
    const options = { connectionString: database.url, max: 1, Client: clientThatRefuses(refusal) };
    pool = new pg.Pool(options);
    return createOutbox<pg.PoolClient>({ db: fromPg(pool), notify: false });
  }

  test('batches: transactions are sent statement by statement', async () => {
    const outbox = outboxOn({ error: new Error('Custom query classes are not supported'), isFor: isBatch });
    for (let i = 0; i < 2; i++) {
      await clear(database);
      await outbox.transaction(async (tx, emit) => {
        await tx.query(insertOrder, ['1']);
        await emit(orderCreated('1'));
      });
      expect(await written(database)).toEqual(one);
      await clear(database);
      await outbox.transaction([{ text: insertOrder, values: ['1'] }], orderCreated('1'));
      expect(await written(database)).toEqual(one);
    }
  });

  test('batches: a statement that fails leaves nothing of those before it', async () => {
    const outbox = outboxOn({ error: new Error('Custom query classes are not supported'), isFor: isBatch });
    const statements = [{ text: insertOrder, values: ['1'] }, { text: 'select 1 / 0' }];
    await expect(outbox.transaction(statements, orderCreated('1'))).rejects.toMatchObject({ code: '22012' });
    expect(await written(database)).toEqual(nothing);
  });

  test('COMMIT on a lost connection: the outcome is known', async () => {
    const error = new Error('Client has encountered a connection error and is not queryable');
    const outbox = outboxOn({ error, isFor: isBatch });
    const refused = outbox.transaction(async (tx, emit) => {
      await tx.query(insertOrder, ['1']);
      await emit(orderCreated('1'));
    });
    await expect(refused).rejects.toMatchObject({ code: 'POSTCOMMIT_E_DATABASE_UNREACHABLE', cause: error });
    expect(await written(database)).toEqual(nothing);
  });
});
