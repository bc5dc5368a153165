import type pg from 'pg';
import { afterAll, beforeAll, beforeEach, describe, expect, onTestFinished, test } from 'vitest';
import type { Executor, Outbox, OutboxDatabase, OutboxEvent } from '../../src/index.ts';
import { createInbox, createOutbox } from '../../src/index.ts';
import { listenInProcess } from '../../src/outbox/emitting/notify.ts';
import { createTestDatabase, type TestDatabase } from '../support/database.ts';
import { clear, createOrders, insertOrder, nothing, one, orderCreated, written } from '../support/orders.ts';
import { quietPool } from '../support/quiet-pool.ts';

/** A client as many are: it runs SQL, and it runs a callback in a transaction. It pipelines nothing and reports nothing. */
interface Sql {
  unsafe(text: string, values: unknown[]): Promise<Record<string, unknown>[]>;
  begin<T>(work: (tx: Sql) => Promise<T>): Promise<T>;
}

/** The adapter, as a user writes it. */
function fromSql(sql: Sql): OutboxDatabase<Sql> {
  const executor = (handle: Sql): Executor => ({
    query: async (text, values = []) => ({ rows: await handle.unsafe(text, values) }),
  });
  return {
    side: executor(sql),
    inTransaction: executor,
    transaction: (work) => sql.begin(work),
  };
}

describe('an adapter of a few lines', () => {
  let database: TestDatabase;
  let pool: pg.Pool;
  let sql: Sql;
  let outbox: Outbox<Sql>;
  /** Every statement that was sent through the client, by its first words. */
  const sent: string[] = [];
  let beginSql: string;

  /** One statement at a time, with the extended protocol: what every driver can do. */
  function over(handle: pg.Pool | pg.PoolClient): Sql {
    return {
      unsafe: async (text, values) => {
        sent.push(text.trim().split(/[\s(]/, 2).join(' '));
        const { rows } = await handle.query({ text, values, queryMode: 'extended' } as pg.QueryConfig);
        return rows;
      },
      async begin(work) {
        const client = await pool.connect();
        let broken: Error | undefined;
        try {
          await client.query(beginSql);
          const result = await work(over(client));
          await client.query('commit');
          return result;
        } catch (error) {
          await client.query('rollback').catch((lost: Error) => {
            broken = lost;
          });
          throw error;
        } finally {
          client.release(broken);
        }
      },
    };
  }

  beforeAll(async () => {
    database = await createTestDatabase();
    await createOrders(database);
    pool = quietPool(database.url, { max: 2 });
    sql = over(pool);
    outbox = createOutbox({ db: fromSql(sql), notify: false });
  });
  beforeEach(async () => {
    await clear(database);
    sent.length = 0;
    beginSql = 'begin';
  });
  afterAll(async () => {
    await pool.end();
    await database.close();
  });

  const event = (payload: unknown): OutboxEvent => ({ type: 'order.changed', aggregate: ['order', '1'], payload });
  async function payloads(): Promise<unknown[]> {
    const rows = await database.query('select payload from postcommit.outbox_events order by seq');
    return rows.map(({ payload }) => payload);
  }
  function countNotifications(): () => number {
    let count = 0;
    onTestFinished(listenInProcess('postcommit', () => count++));
    return () => count;
  }

  describe('emit in a transaction of the client', () => {
    test('is committed with it', async () => {
      const id = await sql.begin(async (tx) => {
        await tx.unsafe(insertOrder, ['1']);
        return outbox.emit(tx, orderCreated('1'));
      });
      expect(await written(database)).toEqual(one);
      expect(await outbox.admin.find(id)).toMatchObject({ id, status: 'PENDING' });
    });

    test('is rolled back with it', async () => {
      const failed = sql.begin(async (tx) => {
        await tx.unsafe(insertOrder, ['1']);
        await outbox.emit(tx, [orderCreated('1'), orderCreated('2')]);
        throw new Error('changed my mind');
      });
      await expect(failed).rejects.toThrow('changed my mind');
      expect(await written(database)).toEqual(nothing);
    });

    test('emitOnce writes an id once', async () => {
      const once = { ...orderCreated('1'), id: '0192f0c1-8f57-7000-8000-000000000001' };
      const answers = [];
      for (let n = 0; n < 2; n++) answers.push(await sql.begin((tx) => outbox.emitOnce(tx, once)));
      expect(answers.map(({ written }) => written)).toEqual([true, false]);
    });

    test('is refused on the root object, where each statement commits by itself', async () => {
      await expect(outbox.emit(sql, orderCreated('1'))).rejects.toMatchObject({
        code: 'POSTCOMMIT_E_NOT_A_TRANSACTION',
      });
      await expect(
        outbox.emitOnce(sql, { ...orderCreated('1'), id: '0192f0c1-8f57-7000-8000-000000000001' }),
      ).rejects.toMatchObject({ code: 'POSTCOMMIT_E_NOT_A_TRANSACTION' });
      expect(await written(database)).toEqual(nothing);
    });

    test('is refused once the transaction has ended', async () => {
      const ended = await sql.begin(async (tx) => ({ tx }));
      await expect(outbox.emit(ended.tx, orderCreated('1'))).rejects.toMatchObject({
        code: 'POSTCOMMIT_E_NOT_A_TRANSACTION',
      });
      expect(await written(database)).toEqual(nothing);
    });

    test('is refused in a transaction that has failed', async () => {
      const failed = sql.begin(async (tx) => {
        await tx.unsafe('select 1/0', []).catch(() => {});
        await outbox.emit(tx, orderCreated('1'));
      });
      await expect(failed).rejects.toMatchObject({ code: 'POSTCOMMIT_E_TRANSACTION_ABORTED' });
    });

    test('asks the server whether it is one, unless the adapter knows', async () => {
      const emitOne = (using: Outbox<Sql>) => sql.begin((tx) => using.emit(tx, orderCreated('1')));
      await emitOne(outbox);
      expect(sent).toEqual(['call "postcommit".emit_one_if_open', 'call "postcommit".emit_one_if_open']);
      expect(await payloads()).toEqual([{ id: '1' }]);
      sent.length = 0;
      await emitOne(createOutbox({ db: { ...fromSql(sql), isOpen: () => true }, notify: false }));
      expect(sent).toEqual(['call "postcommit".emit_one']);
    });

    test('takes one statement in a transaction that has written before', async () => {
      await sql.begin(async (tx) => {
        await tx.unsafe(insertOrder, ['1']);
        sent.length = 0;
        await outbox.emit(tx, orderCreated('1'));
        await outbox.emit(tx, [orderCreated('2'), orderCreated('3')]);
      });
      expect(sent).toEqual(['call "postcommit".emit_one_if_open', "select 'written'"]);
      expect(await payloads()).toEqual([{ id: '1' }, { id: '2' }, { id: '3' }]);
    });

    test('fails for an adapter that drops the rows of a CALL, instead of writing the event twice', async () => {
      const own = fromSql(sql);
      const inTransaction = (tx: Sql) => ({
        query: async (text: string, values?: unknown[]) => {
          const result = await own.inTransaction(tx).query(text, values);
          return text.startsWith('call') ? { rows: [] } : result;
        },
      });
      const dropping = createOutbox({ db: { ...own, inTransaction }, notify: false });
      const failed = sql.begin(async (tx) => {
        await tx.unsafe(insertOrder, ['1']);
        await dropping.emit(tx, orderCreated('1'));
      });
      await expect(failed).rejects.toMatchObject({ code: 'POSTCOMMIT_E_BAD_ADAPTER' });
      expect(await payloads()).toEqual([]);
    });

    test('fails for an adapter whose rows lack the column of the answer', async () => {
      const own = fromSql(sql);
      const inTransaction = (tx: Sql) => ({
        query: async (text: string, values?: unknown[]) => {
          const { rows } = await own.inTransaction(tx).query(text, values);
          return { rows: rows.map((row) => ({ Answer: Object.values(row)[0], at: new Date() })) };
        },
      });
      const changing = createOutbox({ db: { ...own, inTransaction, isOpen: () => true }, notify: false });
      const badAdapter = { code: 'POSTCOMMIT_E_BAD_ADAPTER', message: expect.stringContaining('"Answer", "at"') };
      const id = '0192f0c1-8f57-7000-8000-000000000001';
      const once = sql.begin((tx) => changing.emitOnce(tx, { ...orderCreated('1'), id }));
      await expect(once).rejects.toMatchObject(badAdapter);
      const buffered = changing.transaction(async (tx, emit) => {
        await emit(orderCreated('1'));
        await changing.emit(tx, orderCreated('1'));
      });
      await expect(buffered).rejects.toMatchObject(badAdapter);
      await expect(changing.admin.counts()).rejects.toMatchObject(badAdapter);
      expect(await payloads()).toEqual([]);
    });

    test('keeps the order of calls that are not awaited', async () => {
      const later: Promise<unknown>[] = [];
      let isFirst = true;
      const db: OutboxDatabase<Sql> = {
        ...fromSql(sql),
        inTransaction: (tx) => ({
          async query(text, values = []) {
            const rows = tx.unsafe(text, values);
            // The transaction writes, and emits again, after the first emit has found that it has not written yet.
            if (isFirst) {
              isFirst = false;
              later.push(tx.unsafe(insertOrder, ['1']), using.emit(tx, event(2)));
            }
            return { rows: await rows };
          },
        }),
      };
      const using = createOutbox({ db, notify: false });
      await sql.begin(async (tx) => {
        await using.emit(tx, event(1));
        await Promise.all(later);
      });
      expect(await payloads()).toEqual([1, 2]);
    });

    test('outbox.transaction rejects when the last statement before COMMIT fails', async () => {
      const db: OutboxDatabase<Sql> = {
        ...fromSql(sql),
        inTransaction: (tx) => ({
          // As if it was cancelled.
          query: async (text, values = []) => ({
            rows: await tx.unsafe(text === 'select 1' ? 'select 1 / 0' : text, values),
          }),
        }),
      };
      const using = createOutbox({ db, notify: false });
      const failed = using.transaction(async (tx) => {
        await tx.unsafe(insertOrder, ['1']);
        await using.emit(tx, orderCreated('1'));
      });
      await expect(failed).rejects.toMatchObject({ code: 'POSTCOMMIT_E_TRANSACTION_ABORTED' });
      expect(await written(database)).toEqual(nothing);
    });

    test('keeps the order of outbox.transaction when the handle is a function', async () => {
      const callable = (handle: Sql): Sql => Object.assign(() => {}, handle);
      const db: OutboxDatabase<Sql> = { ...fromSql(sql), transaction: (work) => sql.begin((tx) => work(callable(tx))) };
      const using = createOutbox({ db, notify: false });
      await using.transaction(async (tx, emit) => {
        await emit(event(1));
        await using.emit(tx, event(2));
      });
      expect(await payloads()).toEqual([1, 2]);
    });

    test('notifies relays when the adapter can tell the end of a transaction', async () => {
      const notifications = countNotifications();
      const ends: (() => void)[] = [];
      const telling = createOutbox({ db: { ...fromSql(sql), afterEnd: (_tx, callback) => ends.push(callback) } });
      await sql.begin((tx) => telling.emit(tx, orderCreated('1')));
      await sql.begin((tx) => outbox.emit(tx, orderCreated('1')));
      expect(notifications()).toBe(0);
      for (const end of ends) end();
      expect(notifications()).toBe(1);
    });
  });

  describe('outbox.transaction', () => {
    test('writes events in the order of the calls, and notifies relays', async () => {
      const notifications = countNotifications();
      const answer = await outbox.transaction(async (tx, emit) => {
        await tx.unsafe(insertOrder, ['1']);
        await emit(event(1));
        await outbox.emit(tx, event(2));
        void emit([event(3), event(4)]);
        return 'done';
      });
      expect(answer).toBe('done');
      expect(await payloads()).toEqual([1, 2, 3, 4]);
      expect(notifications()).toBe(1);
    });

    test('notifies relays of what only outbox.emit(tx) wrote', async () => {
      const notifications = countNotifications();
      await outbox.transaction((tx) => outbox.emit(tx, event(1)));
      expect(notifications()).toBe(1);
    });

    test('keeps what was emitted before a rollback to a savepoint', async () => {
      await outbox.transaction(async (tx, emit) => {
        await tx.unsafe('savepoint s', []);
        await emit(event(1));
        await outbox.emit(tx, event('undone'));
        await tx.unsafe('rollback to savepoint s', []);
        await emit(event(2));
      });
      expect(await payloads()).toEqual([1, 2]);
    });

    test('rolls back when the work or an event fails, and notifies no relay', async () => {
      const notifications = countNotifications();
      const thrown = outbox.transaction(async (tx, emit) => {
        await tx.unsafe(insertOrder, ['1']);
        await emit(orderCreated('1'));
        throw new Error('changed my mind');
      });
      await expect(thrown).rejects.toThrow('changed my mind');
      const refused = outbox.transaction(async (tx, emit) => {
        await tx.unsafe(insertOrder, ['1']);
        void emit({ ...orderCreated('1'), type: '' });
      });
      await expect(refused).rejects.toMatchObject({ code: 'POSTCOMMIT_E_BAD_EVENT' });
      expect(await written(database)).toEqual(nothing);
      expect(notifications()).toBe(0);
    });

    test('refuses an emit after its end', async () => {
      const kept = await outbox.transaction(async (_tx, emit) => ({ emit }));
      await expect(kept.emit(event(1))).rejects.toMatchObject({ code: 'POSTCOMMIT_E_NOT_A_TRANSACTION' });
    });

    test('has the isolation that was asked for', async () => {
      const read = (isolation?: 'repeatable read' | 'serializable') =>
        outbox.transaction(async (tx, emit) => {
          await emit(event(1));
          return (await tx.unsafe(`select current_setting('transaction_isolation') as level`, []))[0]?.level;
        }, isolation && { isolation });
      expect([await read(), await read('repeatable read'), await read('serializable')]).toEqual([
        'read committed',
        'repeatable read',
        'serializable',
      ]);
      await expect(outbox.transaction(async () => {}, { isolation: 'chaos' as 'serializable' })).rejects.toMatchObject({
        code: 'POSTCOMMIT_E_BAD_OPTION',
      });
    });

    test('takes statements that are all known', async () => {
      const id = await outbox.transaction([{ text: insertOrder, values: ['1'] }], orderCreated('1'));
      expect(await written(database)).toEqual(one);
      expect((await outbox.admin.find(id))?.id).toBe(id);
      const twice = outbox.transaction([{ text: insertOrder, values: ['1'] }], orderCreated('1'));
      await expect(twice).rejects.toMatchObject({ code: '23505' });
      expect(await written(database)).toEqual(one);
    });

    test('says so when a lost connection leaves the outcome of COMMIT unknown', async () => {
      const db: OutboxDatabase<Sql> = {
        ...fromSql(sql),
        transaction: async (work) => {
          await sql.begin(work);
          throw new Error('Connection terminated unexpectedly');
        },
      };
      const unknown = { code: 'POSTCOMMIT_E_COMMIT_UNKNOWN' };
      const outbox = createOutbox({ db, notify: false });
      await expect(outbox.transaction((_tx, emit) => emit(event(1)))).rejects.toMatchObject(unknown);
      const inbox = createInbox({ db });
      const processed = { consumer: 'billing', eventId: crypto.randomUUID() };
      await expect(inbox.transaction(processed, () => {})).rejects.toMatchObject(unknown);
    });
  });

  test('outbox.admin reads committed rows, whatever the default isolation is', async () => {
    beginSql = 'begin isolation level serializable';
    const levels: unknown[] = [];
    const watched: OutboxDatabase<Sql> = {
      ...fromSql(sql),
      transaction: (work) =>
        sql.begin(async (tx) => {
          const result = await work(tx);
          levels.push((await tx.unsafe(`select current_setting('transaction_isolation') as level`, []))[0]?.level);
          return result;
        }),
    };
    await createOutbox({ db: watched }).admin.counts();
    expect(new Set(levels)).toEqual(new Set(['read committed']));
  });

  test('createOutbox says what an adapter needs', () => {
    const { transaction: _left, ...partial } = fromSql(sql);
    expect(() => createOutbox({ db: partial as OutboxDatabase<Sql> })).toThrow(/side, inTransaction and transaction/);
    expect(() => createOutbox({ db: database.pool as never })).toThrow('Pass it as { db: fromPg(pool) }.');
  });
});
