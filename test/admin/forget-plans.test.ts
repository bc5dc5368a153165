import type pg from 'pg';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { forgetTarget } from '../../src/admin/forgotten-targets.ts';
import { createTestDatabase, type TestDatabase } from '../support/database.ts';
import { nestedPlans, rowsRead } from '../support/plans.ts';
import { postgresVersions, serverUrlOf } from '../support/postgres-versions.ts';

const target = 'order.created:old';
/** Rows that one statement of `forget` changes. */
const chunk = 1_000;

describe.each(postgresVersions)('forgetting a handler that many events owe, on PostgreSQL %i', (version) => {
  let db: TestDatabase;
  let session: pg.PoolClient;

  beforeEach(async () => {
    db = await createTestDatabase({ serverUrl: serverUrlOf(version) });
    session = await db.pool.connect();
  });
  afterEach(async () => {
    session.release(true);
    await db.close();
  });

  /** Forgets the target. Returns how many rows of a table each chunk read. */
  async function readByForget(table: string): Promise<number[]> {
    const read: number[] = [];
    const query = async (text: string, values: unknown[] = []) => {
      if (text.includes('forget_target(')) read.push(rowsRead(await nestedPlans(session, text, values), table));
      return session.query(text, values);
    };
    await forgetTarget({ query }, 'postcommit', target, {});
    return read;
  }

  test.each([3_500, 14_500])('of %i queued events, a chunk reads a few times what it changes', async (events) => {
    // They owe another handler as well, so that they still owe something afterwards.
    await db.query(
      `insert into postcommit.outbox_queue (seq, owed)
       select n, array[$2::text, 'order.created:other'] from generate_series(1, $1::integer) n`,
      [events, target],
    );
    const read = await readByForget('outbox_queue');
    expect(read).toHaveLength(Math.ceil(events / chunk));
    const last = read.pop() as number;
    expect(Math.max(...read)).toBeLessThan(6 * chunk);
    expect(last, 'counts once the events that relays have claimed').toBeLessThan(6 * chunk + events);
    expect(
      await db.query('select count(*)::integer as n from postcommit.outbox_queue where $1 = any (owed)', [target]),
    ).toEqual([{ n: 0 }]);
  });

  test.each([3_500, 14_500])('of %i dead letters, a chunk reads a few times what it changes', async (letters) => {
    await db.query(
      `insert into postcommit.outbox_dead_letters (seq, reason, attempts, error, owed)
       select n, 'exhausted', 1, 'e', array[$2::text] from generate_series(1, $1::integer) n`,
      [letters, target],
    );
    const read = await readByForget('outbox_dead_letters');
    expect(read).toHaveLength(Math.ceil(letters / chunk));
    expect(Math.max(...read)).toBeLessThan(6 * chunk);
    expect(
      await db.query('select count(*)::integer as n from postcommit.outbox_dead_letters where owed is not null'),
    ).toEqual([{ n: 0 }]);
  });
});
