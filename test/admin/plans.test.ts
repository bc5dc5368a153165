import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { find } from '../../src/outbox/operating/find.ts';
import type { ListRequest } from '../../src/outbox/operating/list.ts';
import { eventStatuses, listStatement } from '../../src/outbox/operating/list.ts';
import { listDeadLettersStatement } from '../../src/outbox/operating/list-dead-letters.ts';
import { listUnhandledTypes } from '../../src/outbox/operating/list-unhandled-types.ts';
import { createTestDatabase, type TestDatabase } from '../support/database.ts';
import { nodesOf, type PlanNode } from '../support/plans.ts';

const size = 200_000;
const queued = 2_000;
const dead = 500;
const shelved = 1_000;

describe('a page of a long list', () => {
  let database: TestDatabase;

  beforeAll(async () => {
    database = await createTestDatabase();
    const { query } = database;
    // ANALYZE then reads the whole log. By a sample, one event in a thousand is too rare for the same plan every time.
    await query('alter table postcommit.outbox_events alter column event_type set statistics 1000');
    await query(
      `insert into postcommit.outbox_events (aggregate_type, aggregate_id, event_type, payload, created_at)
       select 'order', (i % 1000)::text, case when i % 1000 = 0 then 'order.rare' else 'order.created' end,
              jsonb_build_object('total', i), timestamptz '2026-01-01' + i * interval '1 second'
         from generate_series(1, $1) i`,
      [size],
    );
    // As relays would leave it: the newest wait, some of them in the hands of a relay, some before them are dead, and some
    // before those wait for a destination, or for two.
    await query(`insert into postcommit.outbox_relays (name, host, pid, lease_until) values ('r', 'h', 1, 'infinity')`);
    await query(
      `insert into postcommit.outbox_dead_letters (seq, reason, attempts, key, error)
       select seq, 'exhausted', 3, key, 'no' from postcommit.outbox_queue where seq > $1 and seq <= $2`,
      [size - queued - dead, size - queued],
    );
    await query(
      `insert into postcommit.outbox_shelf (destination, seq, key, attempts, takeovers)
       select d.name, q.seq, q.key, 0, 0 from postcommit.outbox_queue q
         join (values ('kafka', 1), ('webhooks', 2)) d(name, every) on q.seq % d.every = 0
        where q.seq > $1 and q.seq <= $2`,
      [size - queued - dead - shelved, size - queued - dead],
    );
    await query('delete from postcommit.outbox_queue where seq <= $1', [size - queued]);
    await query('update postcommit.outbox_queue set claimed_by = 1 where seq <= $1', [size - queued / 2]);
    await query(
      `insert into postcommit.outbox_deliveries (relay, attempts, targets, seqs)
       select 1, 1, '{work}', int8multirange(int8range(i, i + 25)) from generate_series(1, $1, 25) i`,
      [size - queued - dead - shelved],
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
    return [...nodesOf(row['QUERY PLAN'][0].Plan)];
  }

  function scansOf(plan: PlanNode[], table: string): PlanNode[] {
    return plan.filter((node) => node['Relation Name'] === table);
  }

  function scansOfLog(plan: PlanNode[]): PlanNode[] {
    return scansOf(plan, 'outbox_events');
  }

  function visited(scans: PlanNode[]): number {
    return scans.reduce((sum, node) => {
      const removed = (node['Rows Removed by Filter'] ?? 0) + (node['Rows Removed by Index Recheck'] ?? 0);
      return sum + (node['Actual Rows'] + removed) * node['Actual Loops'];
    }, 0);
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
      // The newest delivered event lies behind all that wait, and the hour is looked through for statuses it has not.
      expect(visited(scansOfLog(plan)), name).toBeLessThan(2 * (queued + dead + shelved) + 4_000);
    }
  });

  test('the story of one event reads only that event', async () => {
    await database.query('vacuum analyze');
    const [{ id }] = await database.query('select id from postcommit.outbox_events where seq = $1', [middle]);
    for (const event of [{ id }, { seq: middle }]) {
      let statement: { text: string; values: string[] } | undefined;
      const recorder = {
        query: async (text: string, values: unknown[] = []) => {
          statement = { text, values: values as string[] };
          return database.pool.query(text, values);
        },
      };
      expect(await find(recorder, 'postcommit', event)).toMatchObject({ id, seq: middle, status: 'SENT' });
      if (statement === undefined) throw new Error('find() has sent no statement');
      const plan = await explain('analyze, timing off', statement);
      expect(visited(scansOfLog(plan))).toBeLessThan(10);
      expect(visited(scansOf(plan, 'outbox_deliveries'))).toBeLessThan(10);
    }
  });

  test('event types without a handler are found by index, from a bounded part of the queue', async () => {
    const client = await database.pool.connect();
    try {
      await client.query('begin');
      await client.query(
        `insert into postcommit.outbox_failures (seq, attempt, relay, code, error)
         select seq, 1, 1, 'POSTCOMMIT_E_NO_HANDLER', 'no' from generate_series(1, $1::integer) seq`,
        [size],
      );
      await client.query('update postcommit.outbox_queue set attempts = 1');
      for (const when of ['without statistics', 'with statistics']) {
        let plan: PlanNode[] = [];
        const recorder = {
          query: async (text: string, values: unknown[] = []) => {
            const { rows } = await client.query(`explain (analyze, timing off, format json) ${text}`, values);
            plan = [...nodesOf(rows[0]['QUERY PLAN'][0].Plan)];
            return client.query(text, values);
          },
        };
        const [most] = await listUnhandledTypes(recorder, 'postcommit');
        expect(most, when).toEqual({ type: 'order.created', events: 999 });
        for (const table of ['outbox_events', 'outbox_failures']) {
          const scans = scansOf(plan, table);
          expect(scans.map((node) => node['Node Type']).join(), `${table}, ${when}`).not.toContain('Seq Scan');
          expect(visited(scans), `${table}, ${when}`).toBeLessThan(1_100);
        }
        await client.query('analyze postcommit.outbox_queue; analyze postcommit.outbox_failures');
      }
    } finally {
      await client.query('rollback');
      client.release();
    }
  });

  test('of delivered events looks for the record of those only that have nothing left to do', async () => {
    await database.query('vacuum analyze');
    const request = { status: 'SENT', order: 'newest', events: {}, limit: 51 } as const;
    const plan = await explain('analyze, timing off', listStatement('postcommit', request));
    const lookups = plan.filter((node) => node['Relation Name'] === 'outbox_deliveries');
    expect(lookups.reduce((sum, node) => sum + node['Actual Loops'], 0)).toBeLessThan(4 * request.limit);
  });

  test('of pending events is read in order from a queue and a shelf that are both long', async () => {
    const client = await database.pool.connect();
    try {
      await client.query('begin');
      // Not analysed: statistics are of the time before the outage.
      await client.query(
        `insert into postcommit.outbox_shelf (destination, seq, key, attempts, takeovers)
         select d, seq, seq, 0, 0 from generate_series(1, 60000) seq, unnest('{kafka,webhooks}'::text[]) d`,
      );
      await client.query(
        'insert into postcommit.outbox_queue (seq, key) select seq, seq from generate_series(60001, 120000) seq',
      );
      for (const when of ['with old statistics', 'with new ones']) {
        for (const [name, request] of requests.filter(([, { status }]) => status === 'PENDING')) {
          // A type or an aggregate is looked for in its index, and whether an event of it waits is asked one by one.
          if (request.events.type || request.events.aggregateId) continue;
          const { text, values } = listStatement('postcommit', request);
          const { rows } = await client.query(`explain (analyze, timing off, format json) ${text}`, values);
          const plan = [...nodesOf(rows[0]['QUERY PLAN'][0].Plan)];
          for (const table of ['outbox_queue', 'outbox_shelf', 'outbox_events']) {
            const scans = scansOf(plan, table);
            expect(scans.map((node) => node['Node Type']).join(), `${name}, ${when}: ${table}`).not.toContain(
              'Seq Scan',
            );
            expect(visited(scans), `${name}, ${when}: ${table}`).toBeLessThan(queued + 4_000);
          }
        }
        await client.query('analyze postcommit.outbox_queue; analyze postcommit.outbox_shelf');
      }
    } finally {
      await client.query('rollback');
      client.release();
    }
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
