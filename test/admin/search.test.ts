import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import type { SearchFilter } from '../../src/index.ts';
import { searchStatement } from '../../src/outbox/operating/search.ts';
import { nodesOf, type PlanNode } from '../support/plans.ts';
import { Scene } from './scene.ts';

let scene: Scene;

beforeEach(async () => {
  scene = await Scene.create();
});
afterEach(() => scene.close());

/** The ids of all pages. */
async function searchAll(filter: SearchFilter): Promise<string[]> {
  const ids: string[] = [];
  for (let after: string | undefined; ; ) {
    const page = await scene.admin.search({ ...filter, ...(after && { after }) });
    ids.push(...page.events.map(({ id }) => id));
    after = page.next;
    if (after === undefined) return ids;
  }
}

test('finds events by header and by the error of any attempt', async () => {
  const [, tenant = ''] = await scene.emit([
    { headers: { tenant: 'acme "x"' } },
    { headers: { tenant: 'other', trace: 'acme "x"' } },
  ]);
  const [id = ''] = await scene.emit([{ aggregate: ['order', '2'], payload: { does: 'fail', times: 2 } }]);
  await scene.relay({ retry: { delaysMs: [1, 1, 1] } });
  await scene.untilStatus('SENT', 3);
  expect(await searchAll({ header: ['trace', 'acme "x"'] })).toEqual([tenant]);
  expect(await searchAll({ header: ['tenant', 'acme'] })).toEqual([]);
  expect(await searchAll({ error: 'attempt 1 failed' })).toEqual([id]);
  expect(await searchAll({ error: 'attempt 1 failed', status: 'FAILED' })).toEqual([]);
  expect(await searchAll({ error: 'attempt 1 failed', type: 'order.paid' })).toEqual([]);
});

test.each(['newest', 'oldest'] as const)('finds each match once over several windows, %s first', async (order) => {
  await scene.db.query(`
    insert into postcommit.outbox_events (aggregate_type, aggregate_id, event_type, payload, headers)
    select 'order', n::text, 'order.created', '{}', jsonb_build_object('n', (n % 9000)::text)
      from generate_series(1, 25000) n`);
  await scene.db.query(`
    insert into postcommit.outbox_failures (seq, attempt, relay, error)
    select seq, a, 1, 'attempt ' || a || case when seq % 5000 = 0 then ' special' else '' end
      from postcommit.outbox_events cross join generate_series(1, 2) a where seq <= 12000`);
  const byHeader = await searchAll({ header: ['n', '7'], order });
  expect(byHeader).toHaveLength(3);
  expect(new Set(byHeader).size).toBe(3);
  const byError = await searchAll({ error: 'attempt 2 special', order });
  expect(byError).toHaveLength(2);
  expect(new Set(byError).size).toBe(2);
});

describe('a page that finds nothing', () => {
  test.each([{ header: { name: 'n', value: 'none' } }, { error: 'none' }])(
    'reads a bounded number of rows: %j',
    async (condition) => {
      await scene.db.query(`
      insert into postcommit.outbox_events (aggregate_type, aggregate_id, event_type, payload)
      select 'order', n::text, 'order.created', '{}' from generate_series(1, 30000) n`);
      await scene.db.query(`insert into postcommit.outbox_failures (seq, attempt, relay, error)
      select seq, 1, 1, 'timeout' from postcommit.outbox_events`);
      await scene.db.query('analyze postcommit.outbox_events, postcommit.outbox_failures');
      const request = { ...condition, events: {}, order: 'newest' as const, limit: 50, rowsMax: 1_000 };
      const { text, values } = searchStatement('postcommit', request);
      const [row] = await scene.db.query(`explain (analyze, format json) ${text}`, values);
      const nodes = [...nodesOf(row['QUERY PLAN'][0].Plan as PlanNode)];
      const reads = nodes.filter((node) => node['Relation Name'] !== undefined);
      expect(reads.filter((node) => node['Node Type'] === 'Seq Scan')).toEqual([]);
      for (const node of reads) expect(node['Actual Rows'] * node['Actual Loops']).toBeLessThanOrEqual(1_000);
    },
  );
});

test('groups dead letters by error, apart from numbers and ids, and selects a group', async () => {
  const ids = await scene.emit(
    [1, 2, 3].map((n) => ({ aggregate: ['order', String(n)] as const, payload: { does: 'reject' as const } })),
  );
  await scene.relay();
  await scene.untilStatus('FAILED', 3);
  const errors = ['order 17 not found\n  at line 3', 'order 4711 not found', 'timeout'];
  for (const [i, error] of errors.entries()) {
    await scene.db.query('update postcommit.outbox_dead_letters set error = $2 where seq = $1', [
      await scene.seqOf(ids[i] as string),
      error,
    ]);
  }
  const groups = await scene.admin.deadLetterGroups();
  expect(groups.map(({ group, count }) => [group, count])).toEqual([
    ['order # not found', 2],
    ['timeout', 1],
  ]);
  const target = { errorGroup: 'order # not found' };
  expect(await scene.admin.countDeadLetters(target)).toEqual({ count: 2, blocking: 0, partlyDelivered: 0 });
  expect(await scene.admin.discard(target)).toEqual({ count: 2 });
  expect(await scene.admin.countDeadLetters({ all: true })).toMatchObject({ count: 1 });
});

test('lists blocked aggregates and how many events wait', async () => {
  const [id] = await scene.emit([{ payload: { does: 'reject' } }, {}, {}]);
  await scene.relay({ poison: 'block' });
  await scene.untilStatus('FAILED', 1);
  const blocked = await scene.admin.blockedAggregates();
  expect(blocked).toMatchObject([{ id, key: 'order:1', waiting: 2, aggregate: { type: 'order', id: '1' } }]);
});

test('samples the latency of the newest events', async () => {
  await scene.emit([{}, {}]);
  await scene.relay();
  await scene.untilStatus('SENT', 2);
  const { samples, p50Ms, p95Ms, lastSeq } = await scene.admin.latency();
  expect([samples, lastSeq]).toEqual([2, '2']);
  expect(p50Ms).toBeGreaterThanOrEqual(0);
  expect(p95Ms).toBeGreaterThanOrEqual(p50Ms as number);
});
