import { describe, expect, test } from 'vitest';
import type { ListFilter } from '../../src/index.ts';
import { usePartitionedOutbox } from '../outbox/partitioned-outbox.ts';
import { nestedPlans, nodesOf } from '../support/plans.ts';
import { postgresVersions } from '../support/postgres-versions.ts';
import { settleQueue } from '../support/settle-queue.ts';

const imported = 3_000;
const recent = 100;
const hourMs = 3_600_000;

describe.each(postgresVersions)('a time range on PostgreSQL %i', (version) => {
  const scene = usePartitionedOutbox(version);

  /** Events that end at a time, a second apart. Returns their ids. */
  async function insert(count: number, lastAt: string): Promise<string[]> {
    const rows = await scene.db.query<{ id: string }>(
      `insert into postcommit.outbox_events (aggregate_type, aggregate_id, event_type, payload, created_at)
       select 'order', '1', 'order.created', '{}', ${lastAt} - ($1 - i) * interval '1 second'
         from generate_series(1, $1::integer) i returning id`,
      [count],
    );
    await settleQueue(scene.db);
    return rows.map(({ id }) => id);
  }

  async function listed(filter: ListFilter): Promise<string[]> {
    const ids: string[] = [];
    for (let after: string | undefined, more = true; more; more = after !== undefined) {
      const page = await scene.outbox.admin.list({ ...filter, limit: 1_000, ...(after && { after }) });
      ids.push(...page.events.map(({ id }) => id));
      after = page.next;
    }
    return ids.reverse();
  }

  test.each(['none', 'day'] as const)(
    'finds and replays all of its events where imported history lies between them, partitions: %s',
    async (partitions) => {
      await scene.begin(partitions);
      const before = await insert(recent, `now() - interval '10 minutes'`);
      const history = await insert(imported, `timestamptz '2020-06-01 12:00:00Z'`);
      if (partitions === 'day') await scene.outbox.admin.partitions.rotate();
      const after = await insert(recent, 'now()');
      const from = new Date(Date.now() - hourMs);

      expect(await listed({ from })).toEqual([...before, ...after]);
      expect(await listed({ from, status: 'SENT' })).toEqual([...before, ...after]);
      expect(await listed({ to: from })).toEqual(history);
      const [start, end] = [new Date('2020-06-01T11:59:00Z'), new Date('2020-06-01T12:00:00Z')];
      expect(await listed({ from: start, to: end })).toEqual(history.slice(-61, -1));
      expect(await listed({ from: new Date('2021-01-01'), to: new Date('2021-01-02') })).toEqual([]);

      expect(await scene.outbox.admin.replay({ from })).toEqual({ count: 2 * recent });
      expect(await scene.outbox.admin.replay({ to: from })).toEqual({ count: imported });
    },
  );

  test('is found in a long log by reading some of its blocks', async () => {
    await scene.begin('none');
    const size = 60_000;
    await scene.db.query('alter table postcommit.outbox_events disable trigger user');
    await insert(size, `timestamptz '2026-01-03 12:00:00Z'`);
    await scene.db.query('vacuum analyze postcommit.outbox_events');
    const client = await scene.db.pool.connect();
    try {
      for (const middle of [size * 0.01, size * 0.3, size / 2, size * 0.9]) {
        const time = new Date(Date.parse('2026-01-03T12:00:00Z') - (size - middle) * 1_000).toISOString();
        const plans = await nestedPlans(
          client,
          'select postcommit.find_seq_range($1::timestamptz, $1::timestamptz + $2::interval, $3, $4)',
          [time, '1 hour', middle, middle + 3_600],
        );
        const scans = plans.flatMap((plan) => [...nodesOf(plan)]).filter((node) => node['Relation Name']);
        const read = scans.reduce((sum, node) => {
          const removed = (node['Rows Removed by Filter'] ?? 0) + (node['Rows Removed by Index Recheck'] ?? 0);
          return sum + (node['Actual Rows'] + removed) * node['Actual Loops'];
        }, 0);
        expect(scans.map((node) => node['Node Type'])).toEqual(['Bitmap Heap Scan', 'Bitmap Heap Scan']);
        // 32 blocks have some 2,000 events of this size, and the hour has 3,600; a range may reach into two.
        expect(read).toBeLessThan(10_000);
      }
    } finally {
      client.release();
    }
  });
});
