import { afterAll, beforeAll, expect, it } from 'vitest';
import { createOutbox, fromPg } from '../../src/index.ts';
import { createTestSchema, expectEmitted } from '../../src/testing/index.ts';
import { createTestDatabase, type TestDatabase } from '../support/database.ts';

let database: TestDatabase;

beforeAll(async () => {
  database = await createTestDatabase({ migrate: false });
});

afterAll(() => database.close());

const schemas = async () => {
  const rows = await database.query(`select nspname from pg_namespace where nspname like 'postcommit\\_test\\_%'`);
  return rows.map(({ nspname }) => nspname);
};

it('makes schemas at the same time that know nothing of each other, and leaves nothing behind', async () => {
  const db = fromPg(database.pool);
  const create = () => createTestSchema({ connectionString: database.url });
  const all = await Promise.all([create(), create(), create(), create()]);
  expect((await schemas()).sort()).toEqual(all.map(({ schema }) => schema).sort());
  const eventOf = (schema: string) => ({ type: 'made', aggregate: ['schema', schema] as const, payload: {} });
  await Promise.all(
    all.map(({ schema }) => createOutbox({ db, schema }).transaction((_tx, emit) => emit(eventOf(schema)))),
  );
  for (const { schema } of all) await expectEmitted({ db, schema }, [eventOf(schema)]);
  await Promise.all(all.flatMap(({ drop }) => [drop(), drop()]));
  expect(await schemas()).toEqual([]);
});

it('is dropped at the end of a block with `await using`', async () => {
  {
    await using temporary = await createTestSchema({ connectionString: database.url });
    expect(await schemas()).toEqual([temporary.schema]);
  }
  expect(await schemas()).toEqual([]);
});

it('tells that a transaction of the test is still open, and can be dropped after its end', async () => {
  const { schema, drop } = await createTestSchema({ connectionString: database.url, dropTimeoutMs: 100 });
  const client = await database.pool.connect();
  try {
    await client.query('begin');
    const event = { type: 'made', aggregate: ['schema', schema] as const, payload: {} };
    await createOutbox({ db: fromPg(database.pool), schema }).emit(client, event);
    await expect(drop()).rejects.toMatchObject({
      code: 'POSTCOMMIT_E_LOCK_TIMEOUT',
      message: expect.stringMatching(/was not dropped: another session still used it after 100 ms/),
    });
    expect(await schemas()).toEqual([schema]);
    await client.query('rollback');
    await drop();
    expect(await schemas()).toEqual([]);
  } finally {
    client.release();
  }
});

it('refuses options that it does not know', async () => {
  const coded = { code: 'POSTCOMMIT_E_BAD_OPTION' };
  const connectionString = database.url;
  await expect(createTestSchema({ connectionString, schema: 'public' } as never)).rejects.toMatchObject(coded);
  await expect(createTestSchema({ connectionString, dropTimeoutMs: 0 })).rejects.toMatchObject(coded);
  await expect(createTestSchema({})).rejects.toMatchObject(coded);
});
