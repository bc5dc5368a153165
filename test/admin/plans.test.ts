import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import type { ListRequest } from '../../src/outbox/list.ts';
import { eventStatuses, listStatement } from '../../src/outbox/list.ts';
import { listDeadLettersStatement } from '../../src/outbox/list-dead-letters.ts';
import { createTestDatabase, type TestDatabase } from '../support/database.ts';

const size = 200_000;
const queued = 2_000;
const dead = 500;

interface PlanNode {
  'Node Type': string;
  'Relation Name'?: string;
  'Actual Rows': number;
  'Actual Loops': number;
  'Rows Removed by Filter'?: number;
  'Rows Removed by Index Recheck'?: number;
  Plans?: PlanNode[];
}

function nodes(plan: PlanNode): PlanNode[] {
  return [plan, ...(plan.Plans ?? []).flatMap(nodes)];
}

describe('a page of a long list', () => {
  let database: TestDatabase;

  beforeAll(async () => {
    database = await createTestDatabase();
    const { query } = database;
    await query(
      `insert into postcommit.outbox_events (aggregate_type, aggregate_id, event_type, payload, created_at)
       select 'order', (i % 1000)::text, case when i % 1000 = 0 then 'order.rare' else 'order.created' end,
              jsonb_build_object('total', i), timestamptz '2026-01-01' + i * interval '1 second'
         from generate_series(1, $1) i`,
      [size],
    );
    // As relays would leave it: the newest wait, some of them in the hands of a relay, some before them are dead.
    await query(`insert into postcommit.outbox_relays (name, host, pid, lease_until) values ('r', 'h', 1, 'infinity')`);
    await query(
      `insert into postcommit.outbox_dead_letters (seq, reason, attempts, key, error)
       select seq, 'exhausted', 3, key, 'no' from postcommit.outbox_queue where seq > $1 and seq <= $2`,
      [size - queued - dead, size - queued],
    );
    await query('delete from postcommit.outbox_queue where seq <= $1', [size - queued]);
    await query('update postcommit.outbox_queue set lease = 1 where seq <= $1', [size - queued / 2]);
    await query(
      `insert into postcommit.outbox_deliveries (relay, attempts, targets, seqs)
       select 1, 1, '{work}', int8multirange(int8range(i, i + 25)) from generate_series(1, $1, 25) i`,
      [size - queued - dead],
    );
  });

  afterAll(() => database.close());

  const middle = String(size / 2);
  const conditions: [string, Partial<ListRequest>][] = [
    ['all', {}],
    ['after a cursor', { after: middle }],
    ['of a rare type', { events: { type: 'order.rare' } }],
    ['of an aggregate', { events: { aggregateType: 'order', aggregateId: '7' } }],
    ['of an aggregate type', { events: { aggregateType: 'order' } }],
    [
      'of an hour long ago',
      {
        events: { createdFrom: '2026-01-01T10:00:00Z', createdBefore: '2026-01-01T11:00:00Z' },
        seqFrom: '35900',
        seqBefore: '39700',
      },
    ],
  ];
  const requests = [undefined, ...eventStatuses].flatMap((status) =>
    (['newest', 'oldest'] as const).flatMap((order) =>
      conditions.map(([name, more]): [string, ListRequest] => [
        `${status ?? 'any status'}, ${order}, ${name}`,
        { status, order, events: {}, limit: 51, ...more },
      ]),
    ),
  );

  async function explain(options: string, statement: { text: string; values: string[] }): Promise<PlanNode[]> {
    const [row] = await database.query(`explain (${options}, format json) ${statement.text}`, statement.values);
    return nodes(row['QUERY PLAN'][0].Plan);
  }

  function scansOfLog(plan: PlanNode[]): PlanNode[] {
    return plan.filter((node) => node['Relation Name'] === 'outbox_events');
  }

  test('never scans the log, with or without statistics', async () => {
    const expectNoScan = async () => {
      for (const [name, request] of requests) {
        const types = scansOfLog(await explain('costs', listStatement('postcommit', request))).map(
          (n) => n['Node Type'],
        );
        expect(types.length, name).toBeGreaterThan(0);
        for (const type of types) expect(type, name).not.toContain('Seq Scan');
      }
    };
    await expectNoScan();
    await database.query('vacuum analyze');
    await expectNoScan();
  });

  test('looks at no more of the log than it must', async () => {
    await database.query('vacuum analyze');
    for (const [name, request] of requests) {
      const plan = await explain('analyze, timing off', listStatement('postcommit', request));
      const visited = scansOfLog(plan).reduce((sum, node) => {
        const removed = (node['Rows Removed by Filter'] ?? 0) + (node['Rows Removed by Index Recheck'] ?? 0);
        return sum + (node['Actual Rows'] + removed) * node['Actual Loops'];
      }, 0);
      // The newest delivered event lies behind all that wait, and the hour is looked through for statuses it has not.
      expect(visited, name).toBeLessThan(2 * (queued + dead) + 4_000);
    }
  });

  test('of delivered events looks for the record of those only that have nothing left to do', async () => {
    await database.query('vacuum analyze');
    const request = { status: 'SENT', order: 'newest', events: {}, limit: 51 } as const;
    const plan = await explain('analyze, timing off', listStatement('postcommit', request));
    const lookups = plan.filter((node) => node['Relation Name'] === 'outbox_deliveries');
    expect(lookups.reduce((sum, node) => sum + node['Actual Loops'], 0)).toBeLessThan(4 * request.limit);
  });

  test('of dead letters is read from those', async () => {
    await database.query('vacuum analyze');
    const plan = await explain(
      'analyze, timing off',
      listDeadLettersStatement('postcommit', { letters: {}, limit: 51 }),
    );
    const scans = scansOfLog(plan);
    expect(scans.map((node) => node['Node Type']).join()).not.toContain('Seq Scan');
    expect(scans.reduce((sum, node) => sum + node['Actual Rows'] * node['Actual Loops'], 0)).toBeLessThan(1_000);
  });
});
