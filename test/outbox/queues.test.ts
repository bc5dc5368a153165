import type pg from 'pg';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import type { ArrayQuery } from '../../src/database/executor.ts';
import {
  type ClaimRequest,
  claim,
  claimNext,
  claimNextSql,
  claimOneSql,
  claimSql,
} from '../../src/outbox/delivering/claim.ts';
import { registerRelay } from '../../src/outbox/delivering/register-relay.ts';
import { createTestDatabase, type TestDatabase } from '../support/database.ts';
import { nestedPlans, nodesOf } from '../support/plans.ts';
import { postgresVersions, serverUrlOf } from '../support/postgres-versions.ts';
import { until } from '../support/wait.ts';

const request: Omit<ClaimRequest, 'token'> = {
  floor: '0',
  readyMax: 100,
  dueMax: 10,
  exceptKeys: [],
  inlineBytesMax: 16_384,
  knownSeqs: undefined,
  lowWater: { mark: '0', requeues: '0', server: '' },
  sample: false,
  ownShards: false,
  suspectMax: 1,
  targets: [],
};

const on =
  (queryable: pg.Pool | pg.PoolClient): ArrayQuery =>
  async (text, values) =>
    queryable.query({ text, values: values as unknown[], rowMode: 'array' });

describe.each(postgresVersions)('named queues on PostgreSQL %i', (version) => {
  let db: TestDatabase;
  let token: string;
  beforeEach(async () => {
    db = await createTestDatabase({ serverUrl: serverUrlOf(version) });
    token = await registerRelay(db.pool, 'postcommit', { name: 'r', host: 'h', pid: 1, leaseMs: 3_600_000 });
  });
  afterEach(() => db.close());

  const emit = (aggregate: string, queue: string | null) =>
    db.query('select postcommit.emit($1, $2, $3, $4, queue => $5)', ['t', 'a', aggregate, 'null', queue]);
  const seqsFrom = async (queue: string, more: Partial<ClaimRequest> = {}) =>
    (await claim(on(db.pool), 'postcommit', { token, ...request, queue, ...more })).rows.map(({ seq }) => Number(seq));

  test('a claim takes events of one queue, and none whose predecessor in another one is free', async () => {
    await emit('x', null);
    await emit('x', 'reports');
    await emit('y', 'reports');
    await emit('x', 'default');
    expect(await seqsFrom('reports')).toEqual([3]);
    expect(await seqsFrom('mail')).toEqual([]);
    // The second one of x waits for the one in the other queue.
    expect(await seqsFrom('default')).toEqual([1]);
    expect(await seqsFrom('default')).toEqual([]);
    // Its predecessor belongs to this relay now.
    expect(await seqsFrom('reports')).toEqual([2]);
    expect(await seqsFrom('default')).toEqual([4]);
  });

  test('so does a claim of a single one', async () => {
    await emit('x', 'reports');
    await emit('x', 'default');
    const next = (queue: string) => claimNext(on(db.pool), 'postcommit', { token, ...request, queue });
    expect(await next('default')).toBe('other');
    expect(await next('mail')).toMatchObject({ rows: [] });
    expect(await next('reports')).toMatchObject({ rows: [{ seq: '1', queue: 'reports' }] });
    expect(await next('default')).toMatchObject({ rows: [{ seq: '2', queue: 'default' }] });
  });

  test('nothing is claimed from a paused queue, and other queues are not affected', async () => {
    await emit('x', 'reports');
    await emit('y', 'default');
    await db.query(`update postcommit.outbox_queue set available_at = now() - interval '1 s' where seq = 1`);
    await emit('z', 'reports');
    await db.query(`select postcommit.pause_queue('reports', 'why')`);
    expect(await seqsFrom('reports')).toEqual([]);
    expect(await claimNext(on(db.pool), 'postcommit', { token, ...request, queue: 'reports' })).toMatchObject({
      rows: [],
    });
    expect(await seqsFrom('default')).toEqual([2]);
    await db.query(`update postcommit.outbox_queue_states set paused_at = null`);
    expect(await seqsFrom('reports')).toEqual([1, 3]);
  });

  test('a pause waits for claims that have begun, and a claim that begins meanwhile finds nothing', async () => {
    await emit('x', 'reports');
    const claiming = await db.pool.connect();
    await claiming.query('begin');
    const claimed = await claim(on(claiming), 'postcommit', { token, ...request, queue: 'reports' });
    expect(claimed.rows).toHaveLength(1);
    await emit('y', 'reports');
    let isPaused = false;
    const paused = db.query(`select postcommit.pause_queue('reports', '')`).then(() => {
      isPaused = true;
    });
    const waits = `select from pg_locks where locktype = 'advisory' and not granted
      and database = (select oid from pg_database where datname = current_database())`;
    await until(async () => (await db.query(waits)).length === 1, { what: 'the pause waits for the claim' });
    expect(isPaused).toBe(false);
    expect(await seqsFrom('default')).toEqual([]);
    await claiming.query('commit');
    claiming.release();
    await paused;
    expect(await seqsFrom('reports')).toEqual([]);
    const next = await claimNext(on(db.pool), 'postcommit', { token, ...request, queue: 'reports' });
    expect(next).toMatchObject({ rows: [] });
  });

  test('a claim costs the same beside 200,000 events of another queue', async () => {
    const fill = (from: number, to: number, queue: string, due: string) =>
      db.query(
        `insert into postcommit.outbox_queue (seq, key, queue, available_at)
         select n, n % 1000, '${queue}', ${due} from generate_series(${from}::bigint, ${to}) n`,
      );
    const client = await db.pool.connect();
    const costs = async () => {
      const values = [token, '0', 50, 10, [], 16_384, null, '0', '0', '', false, false, 1, [], 'default'];
      const nextValues = [token, [], 16_384, null, '0', '0', '', [], 'default'];
      const all = [
        ...(await nestedPlans(client, claimSql('postcommit'), values)),
        ...(await nestedPlans(client, claimNextSql('postcommit'), nextValues)),
        ...(await nestedPlans(client, claimOneSql('postcommit'), [token, 'default', 16_384, '0', '0', ''])),
      ];
      const nodes = all.flatMap((plan) => [...nodesOf(plan)]);
      const scans = nodes.filter((node) => node['Node Type'] === 'Seq Scan').map((node) => node['Relation Name']);
      return {
        blocks: all.reduce((sum, top) => sum + (top['Shared Hit Blocks'] ?? 0) + (top['Shared Read Blocks'] ?? 0), 0),
        scans: scans.filter((name) => name?.startsWith('outbox_queue')),
        indexes: new Set(nodes.map((node) => node['Index Name'])),
      };
    };
    await fill(1_000_001, 1_000_100, 'default', 'null');
    await fill(1_000_101, 1_000_200, 'default', `now() - interval '1 minute'`);
    await db.query('analyze postcommit.outbox_queue');
    await costs(); // Makes the plans, with statistics of one small queue, which reads the catalogue.
    const alone = await costs();
    await fill(1, 100_000, 'reports', 'null');
    await fill(100_001, 200_000, 'reports', `now() - interval '1 hour'`);
    await costs(); // Sets hint bits.
    const beside = await costs();
    await db.query('analyze postcommit.outbox_queue');
    client.release(true);
    expect(beside.scans).toEqual([]);
    expect([...beside.indexes]).toEqual(expect.arrayContaining(['outbox_queue_ready_idx', 'outbox_queue_due_idx']));
    expect(beside.blocks).toBeLessThan(alone.blocks * 1.5 + 20);
  });

  test('the names and figures of queues do not depend on how many events there are', async () => {
    await db.query(
      `insert into postcommit.outbox_queue (seq, key, queue, available_at)
       select n, n, case when n % 20000 = 0 then 'q' || n when n % 2 = 0 then 'reports' else 'default' end,
              case when n % 3 = 0 then now() + interval '1 hour' end from generate_series(1, 100000) n`,
    );
    const names = (await db.query('select n from postcommit.queue_names() n')).map(({ n }) => n);
    expect(names).toEqual(['default', 'q100000', 'q20000', 'q40000', 'q60000', 'q80000', 'reports']);
    const client = await db.pool.connect();
    for (const sql of ['select postcommit.queue_names()', `select postcommit.count_queue('q80000', 1000)`]) {
      await nestedPlans(client, sql, []);
      const plans = await nestedPlans(client, sql, []);
      const rows = plans
        .flatMap((plan) => [...nodesOf(plan)])
        .filter((node) => node['Relation Name'] === 'outbox_queue')
        .reduce(
          (sum, node) => sum + node['Actual Rows'] * node['Actual Loops'] + (node['Rows Removed by Filter'] ?? 0),
          0,
        );
      expect(rows, sql).toBeLessThan(50);
    }
    client.release(true);
    const [{ figures }] = await db.query(`select postcommit.count_queue('default', 1000) as figures`);
    expect(figures).toMatchObject({ ready: 1000, inFlight: 0, waiting: 1000 });
  });

  test('SQL emitters choose the queue, and a plain INSERT does', async () => {
    await db.query(
      `select postcommit.emit('[{"event_type":"t","aggregate_type":"a","aggregate_id":"1","queue":"mail"}]')`,
    );
    await db.query(`select postcommit.emit_once(gen_random_uuid(), 't', 'a', '2', 'null', queue => 'mail')`);
    await db.query(
      `insert into postcommit.outbox_events (aggregate_type, aggregate_id, event_type, payload, queue)
       values ('a', '3', 't', 'null', 'mail'), ('a', '4', 't', 'null', 'default'), ('a', '5', 't', 'null', null)`,
    );
    const rows = await db.query('select queue from postcommit.outbox_queue order by seq');
    expect(rows.map(({ queue }) => queue)).toEqual(['mail', 'mail', 'mail', 'default', 'default']);
    const status = await db.query('select queue from postcommit.outbox_status order by seq');
    expect(status.map(({ queue }) => queue)).toEqual(['mail', 'mail', 'mail', 'default', 'default']);
    for (const bad of ['', 'a b', 'a:b', 'x'.repeat(101), 'ä', 'a\n']) {
      await expect(emit('6', bad), JSON.stringify(bad)).rejects.toThrow(/outbox_events_queue_check/);
    }
  });
});
