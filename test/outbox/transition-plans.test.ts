import type pg from 'pg';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { registerRelay } from '../../src/outbox/delivering/register-relay.ts';
import { createTestDatabase, type TestDatabase } from '../support/database.ts';
import { nestedPlans, nodesOf } from '../support/plans.ts';
import { postgresVersions, serverUrlOf } from '../support/postgres-versions.ts';

const events = 10_000;
const keys = 500;

/** Tables that may have millions of rows. */
const large = ['outbox_events', 'outbox_queue', 'outbox_shelf', 'outbox_dead_letters', 'outbox_failures'];

describe.each(postgresVersions)('transitions on PostgreSQL %i read what they change, and little else', (version) => {
  let db: TestDatabase;
  let token: string;
  /** One session for all tests: its plans are made while the tables are empty, and used whatever they hold later. */
  let session: pg.PoolClient;

  const seqs = Array.from({ length: 10 }, (_, n) => String(5_000 + n));
  const someKeys = Array.from({ length: 10 }, (_, n) => String(100 + n));
  const failure = (transition: string) =>
    JSON.stringify(
      seqs.map((seq) => {
        const errors = [{ target: 't', code: 'c', error: 'e' }];
        return { seq, attempts: 0, transition, delay_ms: 1, done: [], errors, reason: 'rejected', waits_for: ['away'] };
      }),
    );
  // Each with what it may meet: rows of the queue that are ready, waiting, parked or claimed.
  const calls: [name: string, state: string, text: string, values: () => unknown[], changes: number][] = [
    ['settle', 'claimed_by = $1', 'settle($1, $2, $3, $4)', () => [token, seqs, [10], '[["t"]]'], 10],
    [
      'settle: two target lists',
      'claimed_by = $1',
      'settle($1, $2, $3, $4)',
      () => [token, seqs, [5, 5], '[["t"], ["u"]]'],
      10,
    ],
    [
      'fail_and_settle',
      'claimed_by = $1',
      'fail_and_settle($1, $2, $3, $4, $5)',
      () => [token, failure('retry'), ['6000', '6001'], [1, 1], '[["t"], ["u"]]'],
      12,
    ],
    ...['retry', 'release', 'shelve', 'dead_letter', 'block'].map((transition): (typeof calls)[number] => [
      `fail: ${transition}`,
      'claimed_by = $1',
      'fail($1, $2)',
      () => [token, failure(transition)],
      10,
    ]),
    ['begin_trial', 'claimed_by = $1', 'begin_trial($1, $2)', () => [token, seqs[0]], 1],
    [
      'defer',
      `available_at = case when seq <= ${keys} then now() + interval '1 hour' end`,
      'defer($1, 20000, 1000)',
      () => [seqs],
      20,
    ],
    ['defer_keys', 'claimed_by = null', 'defer_keys($1, 20000, 10)', () => [someKeys], 200],
    ['undefer_keys', `available_at = now() + interval '1 hour'`, 'undefer_keys($1, 3)', () => [someKeys], 30],
    ['undefer', `available_at = now() + interval '1 hour'`, 'undefer(array[100], array[0])', () => [], 20],
    ['unpark', `available_at = 'infinity'`, 'unpark($1, 0, 100)', () => [someKeys], 100],
    ['make_due', `available_at = now() + interval '1 hour'`, 'make_due($1)', () => [seqs], 10],
    ['unshelve', 'claimed_by = null', `unshelve('away', 1e6, 10, false)`, () => [], 10],
    ['unshelve: trial', 'claimed_by = null', `unshelve('away', 1e6, 3, true)`, () => [], 1],
    ['requeue', 'claimed_by = null', 'requeue($1)', () => [seqs], 10],
    ['discard', 'claimed_by = null', 'discard($1)', () => [seqs], 10],
  ];

  beforeAll(async () => {
    db = await createTestDatabase({ serverUrl: serverUrlOf(version) });
    token = await registerRelay(db.pool, 'postcommit', { name: 'r', host: 'h', pid: 1, leaseMs: 600_000 });
    await db.query(`insert into postcommit.outbox_destinations (destination) values ('away')`);
    session = await db.pool.connect();
    for (const [, , text, values] of calls) {
      for (let n = 0; n < 6; n++) await session.query(`select postcommit.${text}`, values());
    }
    await db.query(`alter table postcommit.outbox_events disable trigger user;
      insert into postcommit.outbox_events (aggregate_type, aggregate_id, event_type, payload)
        select 'a', n::text, 'x', '{}' from generate_series(1, ${events}) n;
      insert into postcommit.outbox_queue (seq, key) select n, n % ${keys} from generate_series(1, ${events}) n;
      insert into postcommit.outbox_shelf (destination, seq, key, attempts, takeovers)
        select 'away', n, n % ${keys}, 0, 0 from generate_series(${events} + 1, ${2 * events}) n;
      insert into postcommit.outbox_dead_letters (seq, reason, attempts, key, error)
        select n, 'rejected', 1, n % ${keys}, 'e' from generate_series(1, ${events}) n`);
  }, 120_000);
  afterAll(async () => {
    session.release();
    await db.close();
  });

  test.each(calls)('%s, with the statistics of empty tables', (_name, ...call) => expectFewRows(...call));

  // The worst that autovacuum can leave behind: no row waits, so an index on the time looks empty.
  describe('with the statistics of a queue in which nothing waits', () => {
    beforeAll(async () => {
      await db.query('update postcommit.outbox_queue set claimed_by = null, available_at = null');
      await db.query('vacuum analyze');
    });
    test.each(calls)('%s', (_name, ...call) => expectFewRows(...call));
  });

  async function expectFewRows(state: string, text: string, values: () => unknown[], changes: number): Promise<void> {
    const set = `update postcommit.outbox_queue set claimed_by = null, available_at = null`;
    await db.query(set);
    await db.query(`update postcommit.outbox_queue set ${state}`, state.includes('$1') ? [token] : []);
    await db.query(`update postcommit.outbox_destinations set unshelved_at = now() - interval '1 minute'`);
    const plans = await nestedPlans(session, `select postcommit.${text}`, values());
    const nodes = plans
      .flatMap((plan) => [...nodesOf(plan)])
      .filter((node) => large.includes(node['Relation Name'] ?? ''));
    expect(nodes.length).toBeGreaterThan(0);
    expect(nodes.filter((node) => node['Node Type'].includes('Seq Scan'))).toEqual([]);
    const read = nodes
      .filter((node) => node['Node Type'].includes('Scan'))
      .map((node) => (node['Actual Rows'] + (node['Rows Removed by Filter'] ?? 0)) * node['Actual Loops']);
    const total = read.reduce((sum, rows) => sum + rows, 0);
    expect(total, 'does what it is called for').toBeGreaterThanOrEqual(changes);
    // Each event is looked at a few times; all of the queue would be 10,000 rows.
    expect(
      total,
      JSON.stringify(nodes.map((node) => [node['Node Type'], node['Index Name'], node['Actual Rows']])),
    ).toBeLessThan(2_000);
  }
});
