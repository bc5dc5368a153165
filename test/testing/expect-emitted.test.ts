import { AssertionError } from 'node:assert';
import type pg from 'pg';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { createOutbox, fromPg, type Outbox, type OutboxDatabase, type OutboxEvent } from '../../src/index.ts';
import { createTestSchema, emittedEvents, expectEmitted, type TestSchema } from '../../src/testing/index.ts';
import { createTestDatabase, type TestDatabase } from '../support/database.ts';
import { postgresVersions, serverUrlOf } from '../support/postgres-versions.ts';

const created = (id: string, payload: unknown = { id }): OutboxEvent => ({
  type: 'order.created',
  aggregate: ['order', id],
  payload,
});

async function failure(promise: Promise<unknown>): Promise<AssertionError> {
  const error = await promise.then(
    () => undefined,
    (reason) => reason,
  );
  expect(error).toBeInstanceOf(AssertionError);
  return error;
}

describe.each(postgresVersions)('expectEmitted on PostgreSQL %i', (version) => {
  const cleanups: (() => Promise<unknown>)[] = [];
  let database: TestDatabase;
  let db: OutboxDatabase<pg.PoolClient>;

  beforeAll(async () => {
    database = await createTestDatabase({ migrate: false, serverUrl: serverUrlOf(version) });
    cleanups.push(() => database.close());
    db = fromPg<pg.PoolClient>(database.pool);
  });

  afterAll(async () => {
    for (const cleanup of cleanups.reverse()) await cleanup();
  });

  /** An outbox in a schema of its own, dropped afterwards. */
  async function withOutbox(work: (outbox: Outbox<pg.PoolClient>, schema: string) => Promise<void>): Promise<void> {
    const temporary: TestSchema = await createTestSchema({ connectionString: database.url });
    try {
      await work(createOutbox({ db, schema: temporary.schema }), temporary.schema);
    } finally {
      await temporary.drop();
    }
  }

  async function inTransaction(work: (client: pg.PoolClient) => Promise<void>, end = 'rollback'): Promise<void> {
    const client = await database.pool.connect();
    try {
      await client.query('begin');
      await work(client);
      await client.query(end);
    } finally {
      client.release();
    }
  }

  it('sees in an open transaction only what that transaction emitted, subtransactions included', () =>
    withOutbox(async (outbox, schema) => {
      await outbox.transaction((_tx, emit) => emit(created('committed before')));
      await inTransaction(async (other) => {
        await outbox.emit(other, created('of another open transaction'));
        await inTransaction(async (tx) => {
          const where = { db, tx, schema };
          await expectEmitted(where, []);
          await outbox.emit(tx, created('1'));
          await tx.query('savepoint kept');
          await outbox.emit(tx, created('2'));
          await tx.query('release savepoint kept');
          await tx.query('savepoint undone');
          await outbox.emit(tx, created('3'));
          await tx.query('rollback to savepoint undone');
          await outbox.transaction((_tx, emit) => emit(created('committed meanwhile')));
          await expectEmitted(where, [created('1'), created('2')]);
          await expectEmitted({ db, schema }, [created('committed before'), created('committed meanwhile')]);
        });
      });
    }));

  it('sees what outbox.transaction keeps until COMMIT, also before the first statement', () =>
    withOutbox(async (outbox, schema) => {
      await outbox.transaction(async (tx, emit) => {
        await emit(created('1'));
        await expectEmitted({ db, tx, schema }, [created('1')]);
        await emit(created('2'));
        await expectEmitted({ db, tx, schema }, [created('1'), created('2')]);
      });
      await expectEmitted({ db, schema }, [created('1'), created('2')]);
    }));

  it('sees nothing after a rollback', () =>
    withOutbox(async (outbox, schema) => {
      await inTransaction(async (tx) => void (await outbox.emit(tx, created('1'))));
      await expectEmitted({ db, schema }, []);
    }));

  it('reads every field, and continues behind an event', () =>
    withOutbox(async (outbox, schema) => {
      const full = { headers: { tenant: 'a' }, queue: 'mails', schemaVersion: 3, attemptsMax: 5, key: 'customer 7' };
      const id = await outbox.transaction((_tx, emit) =>
        emit({ ...created('1', [1, 'ü', null]), ...full, delayMs: 60_000 }),
      );
      const [event] = await expectEmitted({ db, schema }, [{ ...created('1', [1, 'ü', null]), ...full, id }]);
      expect(event?.availableAt?.getTime()).toBeGreaterThan((event?.createdAt.getTime() ?? 0) + 59_000);
      await outbox.transaction((_tx, emit) => emit([{ ...created('2'), key: null }, created('3')]));
      const later = await emittedEvents({ db, schema, after: event?.seq as string });
      expect(later.map(({ aggregate, key, queue }) => [aggregate[1], key, queue])).toEqual([
        ['2', null, 'default'],
        ['3', undefined, 'default'],
      ]);
    }));
});

describe('what expectEmitted reports', () => {
  let database: TestDatabase;
  let db: OutboxDatabase<pg.PoolClient>;

  beforeAll(async () => {
    database = await createTestDatabase();
    db = fromPg<pg.PoolClient>(database.pool);
    await createOutbox({ db }).transaction((_tx, emit) =>
      emit([
        created('7', { total: 13, lines: [{ sku: 'a' }, { sku: 'b' }], at: new Date(0) }),
        { type: 'mail.requested', aggregate: ['order', 7], payload: { to: 'ann' } },
        created('8'),
      ]),
    );
  });

  afterAll(() => database.close());

  it('is a list of what is different, missing and unexpected', async () => {
    const error = await failure(
      expectEmitted({ db }, [
        { ...created('7', { total: 12, lines: [{ sku: 'a' }, { sku: 'c' }] }) },
        created('8'),
        { type: 'order.paid', aggregate: ['order', 8], payload: { total: 1 } },
      ]),
    );
    expect(error.message).toBe(
      [
        'The committed events are not the expected ones: expected 3 events, found 3 events.',
        '  different  order.created of order 7',
        '      payload.total: expected 12, got 13',
        '      payload.lines[1].sku: expected "c", got "b"',
        `  unexpected mail.requested of order 7 { to: 'ann' }`,
        '  ok         order.created of order 8',
        '  missing    order.paid of order 8 { total: 1 }',
      ].join('\n'),
    );
    expect(error.actual).toContainEqual({ type: 'mail.requested', aggregate: ['order', '7'], payload: { to: 'ann' } });
  });

  it('names an event that came in another order', async () => {
    const error = await failure(
      expectEmitted({ db }, [created('8'), { type: 'mail.requested' }], { allowOthers: true }),
    );
    expect(error.message).toContain('such an event is number 2 in the log: the order differs, or it is needed twice');
  });

  it('an event is not counted twice', async () => {
    const mail = { type: 'mail.requested' };
    await failure(expectEmitted({ db }, [mail, mail], { allowOthers: true }));
  });

  it('compares parts of objects, dates, functions and matchers of the test runner', async () => {
    const payload = { at: new Date(0), lines: expect.any(Array), total: (total: unknown) => Number(total) > 12 };
    const [found] = await expectEmitted({ db }, [{ type: 'order.created', payload }], { allowOthers: true });
    expect(found?.aggregate).toEqual(['order', '7']);
    const wrong = { at: new Date(1), lines: expect.any(String), total: (total: unknown) => Number(total) > 13, no: 1 };
    const error = await failure(
      expectEmitted({ db }, [{ type: 'order.created', aggregate: ['order', '7'], payload: wrong }, { type: 'none' }]),
    );
    expect(error.message).toMatch(/payload\.at: expected "1970-01-01T00:00:00.001Z", got "1970-01-01T00:00:00.000Z"/);
    expect(error.message).toMatch(/payload\.lines: expected Any<String>|payload\.lines: expected Any, got/);
    expect(error.message).toMatch(/payload\.total: 13 does not satisfy total\(\)/);
    expect(error.message).toMatch(/payload\.no: expected 1, got undefined/);
  });

  it('refuses what would match by accident', async () => {
    const coded = { code: 'POSTCOMMIT_E_BAD_OPTION' };
    const misspelt = { type: 'order.created', payloda: {} } as never;
    await expect(expectEmitted({ db }, [misspelt])).rejects.toMatchObject(coded);
    await expect(expectEmitted({ db, tx: undefined as never }, [])).rejects.toMatchObject(coded);
    await expect(expectEmitted({ db }, created('7') as never)).rejects.toMatchObject(coded);
    await expect(emittedEvents({ db, after: 'last' })).rejects.toMatchObject(coded);
    const client = await database.pool.connect();
    try {
      await expect(expectEmitted({ db, tx: client }, [])).rejects.toMatchObject({
        code: 'POSTCOMMIT_E_NOT_A_TRANSACTION',
      });
    } finally {
      client.release();
    }
  });
});
