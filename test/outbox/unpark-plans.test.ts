import type pg from 'pg';
import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { unpark } from '../../src/outbox/delivering/unpark.ts';
import { createTestDatabase, type TestDatabase } from '../support/database.ts';
import { nestedPlans, type PlanNode, rowsRead } from '../support/plans.ts';
import { postgresVersions, serverUrlOf } from '../support/postgres-versions.ts';

const keys = 10;
const parkedPerKey = 5_000;
const events = keys * parkedPerKey;
/** Events per statement that unparks. */
const chunk = 1_000;

describe.each(postgresVersions)('behind blocking dead letters of a few keys, on PostgreSQL %i', (version) => {
  let db: TestDatabase;
  let session: pg.PoolClient;

  beforeAll(async () => {
    db = await createTestDatabase({ serverUrl: serverUrlOf(version) });
  });
  afterAll(() => db.close());

  /** Of each key the first event is a dead letter that blocks the others. Beside them, ready events of other keys. */
  async function fill(): Promise<void> {
    await db.query('truncate postcommit.outbox_queue');
    await db.query(
      `insert into postcommit.outbox_queue (seq, key, blocking, available_at)
       select n, n % $2::integer, n <= $2::integer, timestamptz 'infinity' from generate_series(1, $1::integer) n
       union all
       select n, n, false, null from generate_series($1::integer + 1, 2 * $1::integer) n`,
      [events, keys],
    );
  }

  /** Calls `unpark`. Returns its result, and how many rows of the queue each of its statements read. */
  async function measure(): Promise<{ unparked: number; read: number[] }> {
    const read: number[] = [];
    const query = async (text: string, values: unknown[] = []) => {
      const isRoutine = text.includes('unpark(');
      const plans = isRoutine ? await nestedPlans(session, text, values) : await explain(text, values);
      read.push(rowsRead(plans, 'outbox_queue'));
      return session.query(text, values);
    };
    return { unparked: await unpark({ query }, 'postcommit'), read };
  }

  async function explain(text: string, values: unknown[]): Promise<PlanNode[]> {
    const { rows } = await session.query(`explain (analyze, format json) ${text}`, values);
    return [rows[0]['QUERY PLAN'][0].Plan];
  }

  const analyze = () => db.query('vacuum analyze postcommit.outbox_queue');

  describe.each<[string, () => Promise<void>]>([
    [
      'of an empty queue',
      async () => {
        await db.query('truncate postcommit.outbox_queue');
        await analyze();
        await fill();
      },
    ],
    [
      'of a queue in which nothing waits',
      async () => {
        await fill();
        await db.query('update postcommit.outbox_queue set available_at = null');
        await analyze();
        await fill();
      },
    ],
    [
      'of the queue as it is',
      async () => {
        await fill();
        await analyze();
      },
    ],
  ])('with the statistics %s', (_name, prepare) => {
    beforeEach(async () => {
      await prepare();
      session = await db.pool.connect();
      return () => session.release(true);
    });

    test('a search reads a few rows per key', async () => {
      const { unparked, read } = await measure();
      expect({ unparked, statements: read.length }).toEqual({ unparked: 0, statements: 1 });
      expect(read[0]).toBeGreaterThanOrEqual(keys);
      expect(read[0]).toBeLessThan(5 * keys);
    });

    test('when these are resolved, each statement reads a few times the events that it unparks', async () => {
      await db.query('delete from postcommit.outbox_queue where blocking');
      const { unparked, read } = await measure();
      expect(unparked).toBe(events - keys);
      expect(Math.max(...read)).toBeGreaterThanOrEqual(chunk);
      expect(Math.max(...read)).toBeLessThan(3 * chunk);
    });
  });
});
