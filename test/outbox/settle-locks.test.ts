import type pg from 'pg';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import type { ArrayQuery } from '../../src/database/executor.ts';
import { fail } from '../../src/outbox/delivering/fail.ts';
import { registerRelay } from '../../src/outbox/delivering/register-relay.ts';
import { settle } from '../../src/outbox/delivering/settle.ts';
import { cancel } from '../../src/outbox/operating/cancel.ts';
import { createTestDatabase, type TestDatabase } from '../support/database.ts';
import { postgresVersions, serverUrlOf } from '../support/postgres-versions.ts';
import { until } from '../support/wait.ts';

const schema = 'postcommit';
const who = { by: 'ann', reason: '' };

describe.each(postgresVersions)('a flush whose results are not in order of seq, on PostgreSQL %i', (version) => {
  let db: TestDatabase;
  let token: string;
  let blocker: pg.PoolClient;
  let query: ArrayQuery;

  beforeEach(async () => {
    db = await createTestDatabase({ serverUrl: serverUrlOf(version) });
    token = await registerRelay(db.pool, schema, { name: 'r', host: 'h', pid: 1, leaseMs: 600_000 });
    await db.query(
      `insert into postcommit.outbox_events (aggregate_type, aggregate_id, event_type, payload)
       select 'order', n::text, 'x', '{}' from generate_series(1, 5) n`,
    );
    await db.query('update postcommit.outbox_queue set claimed_by = $1', [token]);
    query = (text, values) => db.pool.query({ text, values, rowMode: 'array' });
    blocker = await db.pool.connect();
  });
  afterEach(async () => {
    blocker.release(true);
    await db.close();
  });

  async function untilWaiting(count: number): Promise<void> {
    const sql = `select from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'`;
    await until(async () => (await db.query(sql)).length === count, { what: `${count} statements wait for a lock` });
  }

  const flushes: [name: string, flush: () => Promise<string[]>][] = [
    [
      'of several target lists',
      () =>
        settle(query, schema, token, [
          { seq: '5', targets: ['a'] },
          { seq: '3', targets: ['b'] },
        ]),
    ],
    [
      'of failed and delivered events',
      () =>
        fail(
          query,
          schema,
          token,
          [{ seq: '5', attempts: 0, transition: 'retry', delayMs: 0, done: [], errors: [] }],
          [{ seq: '3', targets: ['a'] }],
        ),
    ],
  ];

  describe.each(flushes)('%s', (name, flush) => {
    test('does not deadlock with a cancel of its events that comes later', async () => {
      await blocker.query('begin');
      await blocker.query('select from postcommit.outbox_queue where seq = 5 for update');
      const flushed = flush();
      await untilWaiting(1);
      const cancelled = cancel(db.pool, schema, ['3', '5'], who);
      await untilWaiting(2);
      await blocker.query('commit');
      const [missed, { count, delivered }] = await Promise.all([flushed, cancelled]);
      const isSettled = name === 'of several target lists';
      expect({ missed, count, delivered }).toEqual({
        missed: [],
        count: isSettled ? 0 : 1, // The failed event is in the queue again.
        delivered: isSettled ? 2 : 1,
      });
    });

    test('does not deadlock with a cancel that came earlier, and finds its events cancelled', async () => {
      await blocker.query('begin');
      await blocker.query('select from postcommit.outbox_queue where seq = 5 for update');
      const cancelled = cancel(db.pool, schema, ['3', '5'], who);
      await untilWaiting(1);
      const flushed = flush();
      await untilWaiting(2);
      await blocker.query('commit');
      const [missed, { count, running }] = await Promise.all([flushed, cancelled]);
      expect({ missed: missed.sort(), count, running }).toEqual({ missed: ['3', '5'], count: 2, running: 2 });
    });
  });
});
