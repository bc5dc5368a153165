import { randomUUID } from 'node:crypto';
import type pg from 'pg';
import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { createInbox, type Executor, fromPg, type Inbox, type OutboxDatabase } from '../../src/index.ts';
import { createTestDatabase, type TestDatabase } from '../support/database.ts';
import { quietPool } from '../support/quiet-pool.ts';

describe('what an inbox refuses', () => {
  let db: TestDatabase;
  let pool: pg.Pool;
  let inbox: Inbox<pg.PoolClient>;
  const key = () => ({ consumer: 'accounts', eventId: randomUUID() });
  const notATransaction = { code: 'POSTCOMMIT_E_NOT_A_TRANSACTION' };

  beforeAll(async () => {
    db = await createTestDatabase();
    pool = quietPool(db.url);
    inbox = createInbox({ db: fromPg<pg.PoolClient>(pool) });
  });
  beforeEach(() => db.query('truncate postcommit.processed_events'));
  afterAll(async () => {
    await pool.end();
    await db.close();
  });

  const records = async () => (await db.query('select from postcommit.processed_events')).length;
  let worked = 0;
  const work = () => {
    worked++;
  };

  test('a pool, and a client whose transaction has not begun or has ended', async () => {
    await expect(inbox.once(pool as never, key(), work)).rejects.toMatchObject(notATransaction);
    await expect(inbox.once(undefined as never, key(), work)).rejects.toMatchObject(notATransaction);
    const client = await pool.connect();
    await expect(inbox.once(client, key(), work)).rejects.toMatchObject(notATransaction);
    await client.query('begin');
    await client.query('commit');
    await expect(inbox.once(client, key(), work)).rejects.toMatchObject(notATransaction);
    // A COMMIT that is not answered yet.
    await client.query('begin');
    const committed = client.query('commit');
    await expect(inbox.once(client, key(), work)).rejects.toMatchObject(notATransaction);
    await committed;
    client.release();
    expect([await records(), worked]).toEqual([0, 0]);
  });

  test('a transaction that has failed', async () => {
    const client = await pool.connect();
    await client.query('begin');
    await client.query('select 1 / 0').catch(() => {});
    await expect(inbox.once(client, key(), work)).rejects.toMatchObject({ code: 'POSTCOMMIT_E_TRANSACTION_ABORTED' });
    await client.query('rollback');
    client.release();
    expect(worked).toBe(0);
  });

  test.each<[string, (rows: Record<string, unknown>[]) => unknown]>([
    ['drops rows', () => []],
    ['drops the list of rows', () => undefined],
    ['empties rows', (rows) => rows.map(() => ({}))],
    ['renames columns and adds one', (rows) => rows.map((row) => ({ Recorded: row.recorded, at: new Date() }))],
    ['converts texts', (rows) => rows.map(() => ({ recorded: true }))],
  ])('a client that %s: the event is not taken for a duplicate, and its record is not committed', async (_, change) => {
    const plain = fromPg<pg.PoolClient>(pool);
    for (const isOpen of [true, false]) {
      const changing = createInbox<pg.PoolClient>({
        db: {
          side: plain.side,
          transaction: plain.transaction,
          isOpen: () => isOpen,
          inTransaction: (tx) => ({
            async query(text, values) {
              const { rows } = await plain.inTransaction(tx).query(text, values);
              return { rows: (/recorded/.test(text) ? change(rows) : rows) as Record<string, unknown>[] };
            },
          }),
        },
      });
      const badAdapter = {
        code: 'POSTCOMMIT_E_BAD_ADAPTER',
        message: expect.stringMatching(/"recorded"|list of its rows/),
      };
      await expect(changing.transaction(key(), work)).rejects.toMatchObject(badAdapter);
      const client = await pool.connect();
      await client.query('begin');
      await expect(changing.once(client, key(), work)).rejects.toMatchObject(badAdapter);
      expect((await client.query('commit')).command).toBe('ROLLBACK');
      client.release();
    }
    expect([await records(), worked]).toEqual([0, 0]);
  });

  test.each([
    undefined,
    null,
    '',
    'order-1',
    7,
    `${randomUUID()} `,
    randomUUID().replaceAll('-', ''),
    `{${randomUUID()}}`,
  ])('the event id %j', async (eventId) => {
    const client = await pool.connect();
    await client.query('begin');
    const refused = { code: 'POSTCOMMIT_E_BAD_ID' };
    const given = { consumer: 'accounts', eventId: eventId as string };
    await expect(inbox.once(client, given, work)).rejects.toMatchObject(refused);
    await expect(inbox.onceOutside(given, work)).rejects.toMatchObject(refused);
    // Nothing was sent: the transaction goes on.
    expect(await inbox.once(client, key(), () => 1)).toMatchObject({ duplicate: false });
    await client.query('commit');
    client.release();
    expect([await records(), worked]).toEqual([1, 0]);
  });

  test.each([undefined, '', 7, 'a\0b', '\ud800', 'x'.repeat(201)])('the consumer name %j', async (name) => {
    const refused = { code: 'POSTCOMMIT_E_BAD_CONSUMER' };
    const given = { consumer: name as string, eventId: randomUUID() };
    await expect(inbox.onceOutside(given, work)).rejects.toMatchObject(refused);
    expect(() => inbox.consumer(name as string)).toThrowError(expect.objectContaining(refused));
  });

  test('a consumer name that is taken in this inbox', async () => {
    const own = createInbox({ db: fromPg<pg.PoolClient>(pool) });
    const mail = own.consumer('mail');
    expect(() => own.consumer('mail')).toThrowError(
      expect.objectContaining({ code: 'POSTCOMMIT_E_DUPLICATE_CONSUMER' }),
    );
    const print = own.consumer('print');
    const eventId = randomUUID();
    expect([mail.name, print.name]).toEqual(['mail', 'print']);
    expect(await mail.onceOutside(eventId, () => 'sent', { timeoutMs: 5_000 })).toMatchObject({ result: 'sent' });
    const client = await pool.connect();
    await client.query('begin');
    expect(await print.once(client, eventId, () => 'printed')).toEqual({ duplicate: false, result: 'printed' });
    expect(await mail.once(client, eventId, work)).toEqual({ duplicate: true });
    await client.query('commit');
    client.release();
    expect(worked).toBe(0);
  });

  test('options that do not exist or do not fit, and work that is not a function', async () => {
    const bad = { code: 'POSTCOMMIT_E_BAD_OPTION' };
    const outboxDb = fromPg<pg.PoolClient>(pool);
    expect(() => createInbox({ db: pool as never })).toThrow(/createInbox\(\) got a pool as db/);
    expect(() => createInbox({ db: outboxDb, shcema: 'x' } as never)).toThrow(/Did you mean schema/);
    expect(() => createInbox({ db: outboxDb, schema: 'pg_x' })).toThrowError(
      expect.objectContaining({ code: 'POSTCOMMIT_E_BAD_SCHEMA_NAME' }),
    );
    await expect(inbox.onceOutside(key(), undefined as never)).rejects.toMatchObject(bad);
    for (const timeoutMs of [0, -1, 1.5, Number.NaN, 3_600_001, '5' as never]) {
      await expect(inbox.onceOutside(key(), work, { timeoutMs })).rejects.toMatchObject(bad);
    }
    await expect(inbox.prune({ olderThanMs: -1 })).rejects.toMatchObject(bad);
    await expect(inbox.prune({ olderThan: 1 } as never)).rejects.toMatchObject(bad);
    expect(worked).toBe(0);
  });

  test('a schema without the table, and says what to run', async () => {
    const elsewhere = createInbox({ db: fromPg<pg.PoolClient>(pool), schema: 'elsewhere' });
    await expect(elsewhere.onceOutside(key(), work)).rejects.toMatchObject({ code: 'POSTCOMMIT_E_MIGRATION_MISSING' });
    await expect(elsewhere.prune()).rejects.toMatchObject({ code: 'POSTCOMMIT_E_MIGRATION_MISSING' });
    expect(worked).toBe(0);
  });

  describe('with an adapter that does not know whether a transaction is open', () => {
    /** Runs each statement where the handle says. */
    const fromHandles = (): OutboxDatabase<Executor> => ({
      side: pool,
      inTransaction: (handle) => handle,
      async transaction(inside) {
        const client = await pool.connect();
        try {
          await client.query('begin');
          const result = await inside(client);
          await client.query('commit');
          return result;
        } catch (error) {
          await client.query('rollback');
          throw error;
        } finally {
          client.release();
        }
      },
    });
    const handles = () => createInbox({ db: fromHandles() });

    test('it works in a transaction, once', async () => {
      const given = key();
      const results = await fromHandles().transaction(async (tx) => [
        await handles().once(tx, given, () => 1),
        await handles().once(tx, given, () => 2),
      ]);
      expect(results).toEqual([{ duplicate: false, result: 1 }, { duplicate: true }]);
      expect(await records()).toBe(1);
      expect(await handles().onceOutside(given, work)).toEqual({ duplicate: true });
    });

    test('the root object and a transaction that has ended are refused by the server, and nothing is written', async () => {
      await expect(handles().once(pool, key(), work)).rejects.toMatchObject(notATransaction);
      const ended = await fromHandles().transaction(async (tx) => ({ tx }));
      await expect(handles().once(ended.tx, key(), work)).rejects.toMatchObject(notATransaction);
      expect([await records(), worked]).toEqual([0, 0]);
    });
  });
});
