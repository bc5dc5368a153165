import type pg from 'pg';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { claimNextSql, claimOneSql, claimSql } from '../../src/outbox/delivering/claim.ts';
import { failSql } from '../../src/outbox/delivering/fail.ts';
import { registerRelay } from '../../src/outbox/delivering/register-relay.ts';
import { settleSql } from '../../src/outbox/delivering/settle.ts';
import { createTestDatabase, type TestDatabase } from '../support/database.ts';
import { nestedPlans, nodesOf, type PlanNode } from '../support/plans.ts';

const delivered = 1_000_000;

let db: TestDatabase;
let token: string;

/** In one session for all tests: its plans are made once, while the queue is empty, and used whatever it holds later. */
let session: pg.PoolClient;

async function explain(sql: string, values: unknown[]): Promise<PlanNode[]> {
  return (await nestedPlans(session, sql, values)).flatMap((plan) => [...nodesOf(plan)]);
}

/** The statement of a relay, with values such as a relay with default options and some free buffer sends. */
const explainClaim = ({ floor = '0', readyMax = 499, dueMax = 1 } = {}) => {
  const [exceptKeys, inlineBytesMax, knownSeqs, lowWater] = [[], 32_768, null, ['0', '0', '']];
  const [sample, ownShards, suspectMax, targets, queue] = [true, false, 1, [], 'default'];
  const first = [token, floor, readyMax, dueMax, exceptKeys, inlineBytesMax, knownSeqs, ...lowWater];
  return explain(claimSql('postcommit'), [...first, sample, ownShards, suspectMax, targets, queue]);
};

const explainNext = async () => {
  const next = await explain(claimNextSql('postcommit'), [token, [], 16_384, null, '0', '0', '', [], 'default']);
  return [...next, ...(await explain(claimOneSql('postcommit'), [token, 'default', 16_384, '0', '0', '']))];
};

/** No table that grows is read from end to end, and nothing of it is sorted. */
function expectNoScan(plan: PlanNode[]): void {
  const scanned = plan.filter((node) => node['Node Type'] === 'Seq Scan').map((node) => node['Relation Name']);
  expect(scanned).not.toContain('outbox_events');
  expect(scanned).not.toContain('outbox_queue');
  for (const sort of plan.filter((node) => node['Node Type'].includes('Sort'))) {
    const below = [...nodesOf(sort)].map((node) => node['Relation Name']).filter(Boolean);
    expect(below, `below ${sort['Node Type']}`).not.toContain('outbox_queue');
    expect(below, `below ${sort['Node Type']}`).not.toContain('outbox_events');
  }
}

const indexes = (plan: PlanNode[]) => plan.map((node) => node['Index Name']).filter(Boolean);

async function fillQueue(count: number, availableAt: string): Promise<void> {
  await db.query('truncate postcommit.outbox_queue');
  await db.query(
    `insert into postcommit.outbox_queue (seq, key, available_at)
     select seq, postcommit.key_hash('order', (seq % 1000)::text, null), ${availableAt}
       from generate_series($1::bigint - $2::bigint + 1, $1::bigint) seq`,
    [delivered, count],
  );
  await db.query('vacuum analyze postcommit.outbox_queue');
}

beforeAll(async () => {
  db = await createTestDatabase();
  token = await registerRelay(db.pool, 'postcommit', { name: 'r', host: 'h', pid: 1, leaseMs: 60_000 });
  // A million delivered events: in the log, not in the queue. The indexes that a claim does not use would only cost time.
  await db.query(`
    drop index postcommit.outbox_events_aggregate_idx, postcommit.outbox_events_type_idx, postcommit.outbox_events_id_key;
    alter table postcommit.outbox_events disable trigger user;
    insert into postcommit.outbox_events (aggregate_type, aggregate_id, event_type, payload)
      select 'order', (n % 1000)::text, 'order.created', '{"total": 1}' from generate_series(1, ${delivered}) n;
    alter table postcommit.outbox_events enable trigger user`);
  session = await db.pool.connect();
  await db.query('vacuum analyze');
  for (let n = 0; n < 10; n++) {
    await explainClaim();
    await explainNext();
  }
  await db.query('vacuum analyze postcommit.outbox_events');
}, 120_000);
afterAll(async () => {
  session.release();
  await db.close();
});

describe('with a million delivered events', () => {
  test('a claim of 50,000 queued ones reads by index and sorts nothing', async () => {
    await fillQueue(50_000, 'null');
    const plan = await explainClaim();
    expectNoScan(plan);
    expect(indexes(plan)).toEqual(
      expect.arrayContaining([
        'outbox_queue_ready_idx',
        'outbox_queue_due_idx',
        'outbox_queue_key_idx',
        'outbox_events_pkey',
      ]),
    );
  });

  test('the same from a floor in the middle, where every event waits for an earlier one', async () => {
    await fillQueue(50_000, 'null');
    const plan = await explainClaim({ floor: String(delivered - 25_000) });
    expectNoScan(plan);
    expect(indexes(plan)).toEqual(expect.arrayContaining(['outbox_queue_ready_idx', 'outbox_queue_key_idx']));
  });

  test('the same with 100,000 in backoff', async () => {
    await fillQueue(100_000, `now() + interval '1 hour'`);
    const plan = await explainClaim();
    expectNoScan(plan);
    expect(indexes(plan)).toEqual(expect.arrayContaining(['outbox_queue_ready_idx', 'outbox_queue_due_idx']));
  });

  test('the same with 100,000 due at once', async () => {
    await fillQueue(100_000, `now() - interval '1 hour'`);
    const plan = await explainClaim({ readyMax: 1, dueMax: 499 });
    expectNoScan(plan);
    expect(indexes(plan)).toEqual(expect.arrayContaining(['outbox_queue_ready_idx', 'outbox_queue_due_idx']));
  });

  test('the same with statistics of an empty queue', async () => {
    await db.query('truncate postcommit.outbox_queue');
    await db.query('vacuum analyze postcommit.outbox_queue');
    await db.query(
      `insert into postcommit.outbox_queue (seq, key) select seq, seq % 1000 from generate_series(1, 20000) seq`,
    );
    const plan = await explainClaim();
    expectNoScan(plan);
    expect(indexes(plan)).toEqual(expect.arrayContaining(['outbox_queue_ready_idx', 'outbox_events_pkey']));
  });

  describe('a look for a single one', () => {
    /** Everything that it may have to look at, by index, and next to nothing of it. */
    function expectFewByIndex(plan: PlanNode[]): void {
      expectNoScan(plan);
      expect(indexes(plan)).toEqual(
        expect.arrayContaining([
          'outbox_queue_ready_idx',
          'outbox_queue_due_idx',
          'outbox_queue_key_idx',
          'outbox_queue_pkey',
        ]),
      );
      for (const node of plan.filter((each) => each['Index Name']?.startsWith('outbox_'))) {
        const rows = node['Actual Rows'] * node['Actual Loops'] + (node['Rows Removed by Filter'] ?? 0);
        expect(rows, node['Index Name']).toBeLessThanOrEqual(2);
      }
    }

    test('with 50,000 queued', async () => {
      await fillQueue(50_000, 'null');
      expectFewByIndex(await explainNext());
    });

    test('with 100,000 in backoff, and it is there', async () => {
      await fillQueue(100_000, `now() + interval '1 hour'`);
      await db.query('update postcommit.outbox_queue set available_at = null, key = null where seq = $1', [delivered]);
      const plan = await explainNext();
      expectFewByIndex(plan);
      expect(indexes(plan)).toContain('outbox_events_pkey');
    });

    test('with 100,000 in backoff, one of which stands before it', async () => {
      await fillQueue(100_000, `now() + interval '1 hour'`);
      await db.query('update postcommit.outbox_queue set available_at = null where seq = $1', [delivered]);
      expectFewByIndex(await explainNext());
    });

    test('with 100,000 due at once', async () => {
      await fillQueue(100_000, `now() - interval '1 hour'`);
      expectFewByIndex(await explainNext());
    });

    test('with statistics of an empty queue', async () => {
      await db.query('truncate postcommit.outbox_queue');
      await db.query('vacuum analyze postcommit.outbox_queue');
      await db.query(
        `insert into postcommit.outbox_queue (seq, key) select seq, seq % 1000 from generate_series(1, 20000) seq`,
      );
      expectFewByIndex(await explainNext());
    });
  });

  test('results are written by primary key', async () => {
    await fillQueue(50_000, 'null');
    await db.query('update postcommit.outbox_queue set claimed_by = $1 where seq > $2', [token, delivered - 500]);
    const seqs = Array.from({ length: 500 }, (_, n) => String(delivered - n));
    const settled = await explain(settleSql('postcommit'), [token, seqs, seqs.map(() => 1), '[["t"]]']);
    expectNoScan(settled);
    expect(indexes(settled)).toContain('outbox_queue_pkey');
    const failures = seqs.map((seq) => ({
      seq,
      attempts: 0,
      transition: 'retry',
      delay_ms: 1,
      done: [],
      errors: [{ target: 't', code: 'c', error: 'e' }],
    }));
    const failed = await explain(failSql('postcommit'), [token, JSON.stringify(failures)]);
    const scanned = failed.filter((node) => node['Node Type'] === 'Seq Scan').map((node) => node['Relation Name']);
    expect(scanned).not.toContain('outbox_queue');
    expect(indexes(failed)).toContain('outbox_queue_pkey');
  });
});
