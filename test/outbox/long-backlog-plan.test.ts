import type pg from 'pg';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { claimNextSql, claimOneSql, claimSql } from '../../src/outbox/delivering/claim.ts';
import { registerRelay } from '../../src/outbox/delivering/register-relay.ts';
import { createTestDatabase, type TestDatabase } from '../support/database.ts';
import { nestedPlans, nodesOf } from '../support/plans.ts';
import { postgresVersions, serverUrlOf } from '../support/postgres-versions.ts';

const backlog = 50_000;
const others = 50;

// ANALYZE samples such a table and finds one key in it: an index condition on the key then looks as if it selected nothing.
describe.each(postgresVersions)('behind a long backlog of one aggregate, on PostgreSQL %i', (version) => {
  let db: TestDatabase;
  let token: string;
  let session: pg.PoolClient;

  beforeAll(async () => {
    db = await createTestDatabase({ serverUrl: serverUrlOf(version) });
    token = await registerRelay(db.pool, 'postcommit', { name: 'r', host: 'h', pid: 1, leaseMs: 600_000 });
    await db.query(`alter table postcommit.outbox_events disable trigger user`);
    await db.query(
      `insert into postcommit.outbox_events (aggregate_type, aggregate_id, event_type, payload)
       select 'a', n::text, 'x', '{}' from generate_series(1, $1::integer) n`,
      [backlog + others],
    );
    session = await db.pool.connect();
  }, 120_000);
  afterAll(async () => {
    session.release();
    await db.close();
  });

  /** `others` ready events of keys of their own, after a backlog of one key that waits, in the queue or on the shelf. */
  async function fill(place: 'queue' | 'shelf', ready: number): Promise<void> {
    await db.query(`truncate postcommit.outbox_queue, postcommit.outbox_shelf`);
    await db.query(`insert into postcommit.outbox_destinations (destination) values ('away') on conflict do nothing`);
    await db.query(
      place === 'queue'
        ? `insert into postcommit.outbox_queue (seq, key, available_at)
           select n, 7, now() + interval '1 hour' from generate_series(1, $1::integer) n`
        : `insert into postcommit.outbox_shelf (destination, seq, key, attempts, takeovers)
           select 'away', n, 7, 0, 0 from generate_series(1, $1::integer) n`,
      [backlog],
    );
    await db.query('vacuum analyze postcommit.outbox_queue, postcommit.outbox_shelf');
    await db.query(
      `insert into postcommit.outbox_queue (seq, key)
       select n, 1000 + n from generate_series($1::bigint + 1, $1::bigint + $2::bigint) n`,
      [backlog, ready],
    );
    await session.query('discard plans');
  }

  /** How many rows of queue and shelf a call looks at. */
  async function examined(sql: string, values: unknown[]): Promise<number> {
    const nodes = (await nestedPlans(session, sql, values)).flatMap((plan) => [...nodesOf(plan)]);
    return nodes
      .filter((node) => ['outbox_queue', 'outbox_shelf'].includes(node['Relation Name'] ?? ''))
      .filter((node) => node['Node Type'].includes('Scan'))
      .map((node) => (node['Actual Rows'] + (node['Rows Removed by Filter'] ?? 0)) * node['Actual Loops'])
      .reduce((sum, rows) => sum + rows, 0);
  }

  async function expectCheapClaim(): Promise<void> {
    const first = [token, '0', others, 1, [], 16_384, null, '0', '0', ''];
    const rows = await examined(claimSql('postcommit'), [...first, false, false, 1, [], 'default']);
    expect(rows).toBeGreaterThanOrEqual(others);
    expect(rows).toBeLessThan(20 * others);
  }

  test.each(['queue', 'shelf'] as const)('in the %s, a claim looks at few rows', async (place) => {
    await fill(place, others);
    await expectCheapClaim();
  });

  test('a claim of suspects looks at few rows', async () => {
    await fill('queue', others);
    await db.query('update postcommit.outbox_queue set takeovers = 2 where key <> 7');
    await expectCheapClaim();
  });

  test('a claim of a single event looks at few rows', async () => {
    await fill('queue', 1);
    const next = [token, [], 16_384, null, '0', '0', '', [], 'default'];
    expect(await examined(claimNextSql('postcommit'), next)).toBeLessThan(20);
    expect(await examined(claimOneSql('postcommit'), [token, 'default', 16_384, '0', '0', ''])).toBeLessThan(20);
  });
});
