import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { migrate } from '../../src/index.ts';
import { listStatement } from '../../src/outbox/operating/list.ts';
import { createTestDatabase, type TestDatabase } from '../support/database.ts';
import { nodesOf, type PlanNode } from '../support/plans.ts';
import { room } from './partitioned-outbox.ts';

const days = 30;
const perDay = 1_000;

describe('with a month of partitions', () => {
  let db: TestDatabase;

  beforeAll(async () => {
    db = await createTestDatabase();
    await migrate({ connectionString: db.url, partitions: 'day' });
    for (let day = 0; day < days; day++) {
      const first = day === 0 ? 1 : day * room;
      await db.query(
        `insert into postcommit.outbox_events (aggregate_type, aggregate_id, event_type, payload)
         select 'order', (i % 50)::text, 'order.created', '{}' from generate_series(1, ${perDay}) i`,
      );
      await db.query(
        `insert into postcommit.outbox_deliveries (relay, attempts, targets, seqs)
         select 1, 1, '{work}', int8multirange(int8range(s, s + 100))
           from generate_series(${first}, ${first + perDay - 1}, 100) s`,
      );
      await db.query('truncate postcommit.outbox_queue');
      await db.query('select postcommit.rotate_partitions(true)');
    }
  });
  afterAll(() => db.close());

  /** The scans that ran, of the log and of the record. */
  async function scans(text: string, values: unknown[] = []): Promise<{ log: PlanNode[]; record: PlanNode[] }> {
    const [row] = await db.query(`explain (analyze, timing off, format json) ${text}`, values);
    const ran = [...nodesOf(row['QUERY PLAN'][0].Plan)].filter((node) => node['Actual Loops'] > 0);
    const of = (table: string) => ran.filter((node) => node['Relation Name']?.startsWith(table));
    return { log: of('outbox_events'), record: of('outbox_deliveries') };
  }

  const tables = (found: PlanNode[]) => [...new Set(found.map((node) => node['Relation Name']))];

  function visited(found: PlanNode[]): number {
    const rows = (node: PlanNode) =>
      (node['Actual Rows'] + (node['Rows Removed by Filter'] ?? 0)) * node['Actual Loops'];
    return found.reduce((sum, node) => sum + rows(node), 0);
  }

  const lookups = (found: PlanNode[]) => found.reduce((sum, node) => sum + node['Actual Loops'], 0);

  const someSeq = String(15 * room + 7);

  test.each(['without statistics', 'with statistics'])('each lookup looks into its own partition, %s', async (when) => {
    if (when === 'with statistics') await db.query('vacuum analyze');

    const loaded = await scans('select payload::text from postcommit.outbox_events where seq = $1::bigint', [someSeq]);
    expect(tables(loaded.log)).toEqual(['outbox_events_p15']);

    const status = await scans('select * from postcommit.outbox_status where seq = $1::bigint', [someSeq]);
    expect(tables(status.log)).toEqual(['outbox_events_p15']);
    expect(tables(status.record)).toEqual(['outbox_deliveries_p15']);

    // An id says nothing about the partition, so each has its index asked; the record is asked once.
    const [{ id }] = await db.query('select id from postcommit.outbox_events where seq = $1', [someSeq]);
    const byId = await scans('select * from postcommit.outbox_status where id = $1::uuid', [id]);
    expect(visited(byId.log)).toBeLessThan(10);
    expect(tables(byId.record)).toEqual(['outbox_deliveries_p15']);
  });

  test.each(['newest', 'oldest'] as const)(
    'a page of delivered events, %s first, ends with the page',
    async (order) => {
      await db.query('vacuum analyze');
      for (const events of [{}, { aggregateType: 'order', aggregateId: '7' }]) {
        const { text, values } = listStatement('postcommit', { status: 'SENT', order, events, limit: 51 });
        const { log, record } = await scans(text, values);
        // One row of each partition may be read ahead, to find out which is next.
        expect(visited(log)).toBeLessThan(4 * 51 + 2 * (days + 4));
        expect(lookups(record)).toBeLessThan(4 * 51 + 2 * (days + 4));
      }
    },
  );
});
