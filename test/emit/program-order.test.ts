import { randomUUID } from 'node:crypto';
import type pg from 'pg';
import { afterAll, beforeAll, beforeEach, describe, expect, test, vi } from 'vitest';
import { createOutbox, defineEvents, fromPg, type Outbox, type OutboxEvent } from '../../src/index.ts';
import { createTestDatabase, type TestDatabase } from '../support/database.ts';
import { quietPool } from '../support/quiet-pool.ts';
import { deferred } from '../support/wait.ts';

describe('the order of events that one outbox.transaction() emits', () => {
  let database: TestDatabase;
  let pool: pg.Pool;
  let outbox: Outbox<pg.PoolClient>;

  beforeAll(async () => {
    database = await createTestDatabase();
    pool = quietPool(database.url, { max: 1 });
    outbox = createOutbox<pg.PoolClient>({ db: fromPg(pool), notify: false });
    await database.query(`
      create table orders (id text primary key);
      create function emit_order() returns trigger language plpgsql as $$
      begin
        perform postcommit.emit('order.inserted', 'order', '1', to_jsonb(new.id));
        return null;
      end $$;
      create trigger emit_order after insert on orders for each row execute function emit_order()`);
  });
  beforeEach(() => database.query('truncate orders, postcommit.outbox_events, postcommit.outbox_queue'));
  afterAll(async () => {
    await pool.end();
    await database.close();
  });

  const event = (payload: unknown, type = 'order.changed'): OutboxEvent => ({
    type,
    aggregate: ['order', '1'],
    payload,
  });
  async function payloads(): Promise<unknown[]> {
    const rows = await database.query<{ payload: unknown }>(
      'select payload from postcommit.outbox_events order by seq',
    );
    return rows.map(({ payload }) => payload);
  }

  test.each([{}, { pipeline: false }])('is that of the calls of emit and outbox.emit(tx): %j', async (options) => {
    await outbox.transaction(async (tx, emit) => {
      await emit(event(1));
      await outbox.emit(tx, event(2));
      await emit([event(3), event(4)]);
      await emit(event(5));
      await outbox.emit(tx, [event(6), event(7)]);
      await emit(event(8));
    }, options);
    expect(await payloads()).toEqual([1, 2, 3, 4, 5, 6, 7, 8]);
  });

  test('also when no call is awaited and some checks take longer', async () => {
    const late = deferred();
    const slow = {
      '~standard': { version: 1, vendor: 'test', validate: () => late.promise.then(() => ({ value: 1 })) },
    };
    const events = defineEvents({ slow: { schema: slow }, fast: {} });
    const checked = createOutbox<pg.PoolClient>({ db: fromPg(pool), notify: false, events });
    await checked.transaction(async (tx, emit) => {
      void emit(event(1, 'slow'));
      void checked.emit(tx, event(2, 'fast'));
      void emit(event(3, 'fast'));
      void checked.emit(tx, event(4, 'slow'));
      void checked.emit(tx, event(5, 'fast'));
      void emit(event(6, 'fast'));
      setImmediate(late.resolve);
    });
    expect(await payloads()).toEqual([1, 2, 3, 4, 5, 6]);
  });

  test('also through another outbox on the same tables', async () => {
    const other = createOutbox<pg.PoolClient>({ db: fromPg(pool), notify: false });
    await outbox.transaction(async (tx, emit) => {
      await emit(event(1));
      await other.emit(tx, event(2));
      await emit(event(3));
    });
    expect(await payloads()).toEqual([1, 2, 3]);
  });

  test('events of a trigger come before what emit still holds, and after what outbox.emit(tx) has written', async () => {
    await outbox.transaction(async (tx, emit) => {
      await outbox.emit(tx, event('written'));
      await emit(event('held'));
      await tx.query('insert into orders (id) values ($1)', ['trigger']);
    });
    expect(await payloads()).toEqual(['written', 'trigger', 'held']);
  });

  test('a refused event fails the transaction, also when it was written with another one', async () => {
    const failing = outbox.transaction(async (tx, emit) => {
      void emit({ ...event(1), id: 'not a uuid' });
      await outbox.emit(tx, event(2)).catch(() => {});
    });
    await expect(failing).rejects.toMatchObject({ code: 'POSTCOMMIT_E_BAD_ID' });
    expect(await payloads()).toEqual([]);
  });

  test('a refused outbox.emit(tx) that the work catches costs no other event', async () => {
    await outbox.transaction(async (tx, emit) => {
      await emit(event(1));
      await expect(outbox.emit(tx, { ...event(0), id: 'not a uuid' })).rejects.toMatchObject({
        code: 'POSTCOMMIT_E_BAD_ID',
      });
      await emit(event(2));
    });
    expect(await payloads()).toEqual([1, 2]);
  });

  describe('with savepoints', () => {
    test.each([{}, { pipeline: false }])(
      'a rollback to one takes back outbox.emit(tx), not emit: %j',
      async (options) => {
        const id = await outbox.transaction(async (tx, emit) => {
          const emitted = await emit(event('kept'));
          await tx.query('savepoint s');
          await outbox.emit(tx, event('taken back'));
          await tx.query('rollback to savepoint s');
          return emitted;
        }, options);
        const rows = await database.query(
          'select e.id, payload from postcommit.outbox_events e join postcommit.outbox_queue using (seq)',
        );
        expect(rows).toEqual([{ id, payload: 'kept' }]);
      },
    );

    test('what was undone is written again in order: several savepoints, one released', async () => {
      await outbox.transaction(async (tx, emit) => {
        await emit(event(1));
        await outbox.emit(tx, event(2));
        await tx.query('savepoint outer_one');
        await emit(event(3));
        await outbox.emit(tx, event('taken back'));
        await tx.query('savepoint inner_one');
        await emit([event(4), event(5)]);
        await outbox.emit(tx, event('taken back'));
        await tx.query('release savepoint inner_one');
        await emit(event(6));
        await tx.query('rollback to savepoint outer_one');
        await emit(event(7));
        await outbox.emit(tx, event(8));
        await emit(event(9));
      });
      expect(await payloads()).toEqual([1, 2, 3, 4, 5, 6, 7, 8, 9]);
    });

    test('also before an outbox.emit(tx) with nothing new, and again and again', async () => {
      await outbox.transaction(async (tx, emit) => {
        await tx.query('savepoint s');
        await emit(event(1));
        for (let i = 0; i < 3; i++) {
          await outbox.emit(tx, event('taken back'));
          await tx.query('rollback to savepoint s');
        }
        await outbox.emit(tx, event(2));
        await tx.query('release savepoint s');
      });
      expect(await payloads()).toEqual([1, 2]);
    });

    test('what is written again locks its aggregate again', async () => {
      const locks = await outbox.transaction(async (tx, emit) => {
        await tx.query('savepoint s');
        await emit(event(1));
        await outbox.emit(tx, event('taken back'));
        await tx.query('rollback to savepoint s');
        await outbox.emit(tx, { ...event(2), key: null });
        const { rows } = await tx.query(
          `select count(*)::integer as count from pg_locks where locktype = 'advisory' and pid = pg_backend_pid()`,
        );
        return rows[0].count;
      });
      expect(locks).toBe(2); // The gate and the aggregate.
      expect(await payloads()).toEqual([1, 2]);
    });

    test('a failed outbox.emit(tx) that the work rolls back costs no event of emit', async () => {
      const id = randomUUID();
      await outbox.transaction(async (tx, emit) => {
        await emit({ ...event(1), id });
        await tx.query('savepoint s');
        await expect(outbox.emit(tx, { ...event(0), id })).rejects.toMatchObject({ code: 'POSTCOMMIT_E_DUPLICATE_ID' });
        await emit(event(2));
        // The transaction is aborted, so this writes nothing.
        await expect(outbox.emit(tx, event(0))).rejects.toMatchObject({ code: 'POSTCOMMIT_E_TRANSACTION_ABORTED' });
        await tx.query('rollback to savepoint s');
        await emit(event(3));
      });
      expect(await payloads()).toEqual([1, 2, 3]);
    });

    test('an event of emit that the log refuses fails the transaction, not only the savepoint', async () => {
      const id = await outbox.transaction((_tx, emit) => emit(event('first')));
      const failing = outbox.transaction(async (tx, emit) => {
        await emit({ ...event('same id'), id });
        await tx.query('savepoint s');
        await outbox.emit(tx, event(2)).catch(() => {});
        await tx.query('rollback to savepoint s');
      });
      await expect(failing).rejects.toMatchObject({ code: 'POSTCOMMIT_E_DUPLICATE_ID' });
      expect(await payloads()).toEqual(['first']);
    });

    test('an aborted transaction commits nothing', async () => {
      const failing = outbox.transaction(async (tx, emit) => {
        await emit(event(1));
        await outbox.emit(tx, event(2));
        await tx.query('select 1 / 0').catch(() => {});
      });
      await expect(failing).rejects.toMatchObject({ code: 'POSTCOMMIT_E_TRANSACTION_ABORTED' });
      expect(await payloads()).toEqual([]);
    });

    test('a transaction that forgot its settings is not committed', async () => {
      const failing = outbox.transaction(async (tx, emit) => {
        await emit(event(1));
        await outbox.emit(tx, event(2));
        await tx.query('reset all');
      });
      await expect(failing).rejects.toMatchObject({ code: 'POSTCOMMIT_E_NOT_A_TRANSACTION' });
      expect(await payloads()).toEqual([]);
    });
  });

  test.each([
    // BEGIN, the statement of the work, and COMMIT, which the events of emit travel with.
    ['emit alone', ['emit', 'emit'], 3],
    ['outbox.emit(tx) alone', ['now', 'now'], 5],
    ['outbox.emit(tx) before emit', ['now', 'emit'], 4],
    ['emit before outbox.emit(tx): a flush, and a look before COMMIT', ['emit', 'now'], 6],
  ])('statements sent: %s', async (_name, calls, count) => {
    const client = await pool.connect();
    client.release();
    const query = vi.spyOn(client, 'query');
    try {
      await outbox.transaction(async (tx, emit) => {
        await tx.query('select 1');
        for (const call of calls) await (call === 'emit' ? emit(event(1)) : outbox.emit(tx, event(1)));
      });
      expect(query).toHaveBeenCalledTimes(count);
    } finally {
      query.mockRestore();
    }
  });
});
