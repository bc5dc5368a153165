import { afterEach, describe, expect, test } from 'vitest';
import { isRefusedValue } from '../../src/database/database-error.ts';
import { createOutbox, createRelay, fromPg, migrate } from '../../src/index.ts';
import { createTestDatabase, type TestDatabase } from '../support/database.ts';
import { postgresVersions, serverUrlOf } from '../support/postgres-versions.ts';

const newOutbox = (db: TestDatabase) => createOutbox({ db: fromPg(db.pool), notify: false });

describe.each(postgresVersions)('encodings of a database on PostgreSQL %i', (version) => {
  const serverUrl = serverUrlOf(version);
  const open: TestDatabase[] = [];

  afterEach(async () => {
    await Promise.all(open.splice(0).map((database) => database.close()));
  });

  async function database(encoding: string): Promise<TestDatabase> {
    const made = await createTestDatabase({ migrate: false, encoding, serverUrl });
    open.push(made);
    return made;
  }

  const emitText = (outbox: ReturnType<typeof newOutbox>, text: string) =>
    outbox.transaction((_tx, emit) =>
      emit({ type: 'x', aggregate: ['größe', text], payload: { text }, headers: { text } }),
    );

  test.each([
    ['LATIN1', 'Grüße, señor', '注文'],
    ['WIN1252', 'Grüße für 5 €, señor…', '注文'],
    ['EUC_JP', '注文', '😀'],
  ])('%s: an outbox works, and refuses text that the encoding lacks', async (encoding, known, unknown) => {
    const db = await database(encoding);
    await migrate({ connectionString: db.url });
    const outbox = newOutbox(db);
    const text = encoding === 'EUC_JP' ? known : `${known} größe`;
    await emitText(outbox, text);

    await expect(emitText(outbox, unknown)).rejects.toMatchObject({
      code: 'POSTCOMMIT_E_TEXT_NOT_STORABLE',
      message: expect.stringContaining(encoding),
    });
    const client = await db.pool.connect();
    await client.query('begin');
    const event = { type: unknown, aggregate: ['a', '1'] as const, payload: null };
    await expect(outbox.emit(client, event)).rejects.toMatchObject({ code: 'POSTCOMMIT_E_TEXT_NOT_STORABLE' });
    await client.query('rollback');
    client.release();

    const seen: unknown[] = [];
    const relay = createRelay({
      connectionString: db.url,
      handlers: { x: { see: (received) => void seen.push([received.payload, received.headers]) } },
    });
    expect(await relay.runOnce()).toEqual({ delivered: 1, failed: 0, deadLettered: 0, complete: true });
    expect(seen).toEqual([[{ text }, { text }]]);
  });

  test.each(['SQL_ASCII', 'MULE_INTERNAL'])('%s is refused, and nothing is changed', async (encoding) => {
    const db = await database(encoding);
    for (const dryRun of [true, false]) {
      await expect(migrate({ connectionString: db.url, dryRun })).rejects.toMatchObject({
        code: 'POSTCOMMIT_E_DATABASE_ENCODING',
        message: expect.stringContaining(encoding),
      });
    }
    if (encoding === 'MULE_INTERNAL') return; // No statement could ask.
    expect(await db.query(`select from pg_namespace where nspname = 'postcommit'`)).toEqual([]);
  });

  test('an error about a value is distinguished from an error about the state of the database', async () => {
    const db = await database('LATIN1');
    await db.query('create table checked (n integer constraint positive check (n > 0) not null)');
    await db.query('create table parted (n integer) partition by range (n)');
    const refusal = (text: string, values: unknown[]) => db.query(text, values).then(undefined, isRefusedValue);
    const asked: [string, unknown[], boolean][] = [
      ['insert into checked values ($1)', [-1], true],
      ['insert into checked values ($1)', [null], true],
      ['insert into checked values ($1)', [2 ** 40], true],
      ['select $1::text', ['注文'], true],
      ['select $1::text', ['a\0b'], true],
      ['select $1::jsonb', ['"\\ud83d"'], true],
      ["select now() + $1::float8 * interval '1 ms'", [1e300], true],
      ['insert into parted values ($1)', [1], false],
      ['insert into missing values ($1)', [1], false],
    ];
    for (const [text, values, expected] of asked) {
      expect(await refusal(text, values), `${text} ${String(values)}`).toBe(expected);
    }
    expect(
      [new Error('Connection terminated'), { code: 'ECONNRESET' }, { code: '57P01' }, null].map(isRefusedValue),
    ).toEqual([false, false, false, false]);
  });
});
