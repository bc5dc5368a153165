import pg from 'pg';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { createOutbox, fromPg, type Outbox } from '../../src/index.ts';
import { createTestDatabase, type TestDatabase } from '../support/database.ts';

// A pool as a service has it: only the pool handles errors of its clients, and only of idle ones. An unhandled 'error'
// event would end the process, so it fails the test run.
describe('a connection that PostgreSQL ends in the middle of outbox.transaction', () => {
  let db: TestDatabase;
  let pool: pg.Pool;
  let outbox: Outbox<pg.PoolClient>;
  beforeEach(async () => {
    db = await createTestDatabase();
    pool = new pg.Pool({ connectionString: db.url, max: 1 });
    pool.on('error', () => {});
    outbox = createOutbox({ db: fromPg(pool) });
  });
  afterEach(async () => {
    await pool.end();
    await db.close();
  });

  const event = { type: 't', aggregate: ['a', '1'] as [string, string], payload: {} };
  const expectUsable = async () => {
    await outbox.transaction([], event);
    const [{ n }] = await db.query('select count(*)::integer as n from postcommit.outbox_events');
    expect(n).toBe(1);
  };

  test('fails a transaction of known statements, and no more', async () => {
    const suicide = { text: 'select pg_terminate_backend(pg_backend_pid())' };
    await expect(outbox.transaction([suicide], event)).rejects.toMatchObject({
      code: 'POSTCOMMIT_E_COMMIT_UNKNOWN',
    });
    await expectUsable();
  });

  test('fails a transaction with work in it, and no more', async () => {
    const failing = outbox.transaction(async (tx, emit) => {
      await emit(event);
      const { rows } = await tx.query('select pg_backend_pid() as pid');
      const gone = new Promise((resolve) => tx.once('end', resolve));
      await db.query('select pg_terminate_backend($1)', [rows[0].pid]);
      await gone;
    });
    await expect(failing).rejects.toThrow();
    await expectUsable();
  });

  test('fails what copies from stdin, and no more', async () => {
    await db.query('create table copied (x text)');
    await expect(outbox.transaction([{ text: 'copy copied from stdin' }], event)).rejects.toThrow();
    await expectUsable();
  });
});
