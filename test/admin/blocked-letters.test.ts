import { describe, expect, test } from 'vitest';
import { OutboxAdmin } from '../../src/admin/admin.ts';
import { usePartitionedOutbox } from '../outbox/partitioned-outbox.ts';
import type { TestDatabase } from '../support/database.ts';
import { postgresVersions } from '../support/postgres-versions.ts';

const letters = 3_000;

/** Dead letters that each hold a key of their own, with two events parked behind each. */
async function fill(db: TestDatabase): Promise<void> {
  await db.query(
    `insert into postcommit.outbox_events (aggregate_type, aggregate_id, event_type, payload)
     select 'order', (i % $1)::text, 'x', '{}' from generate_series(0, 3 * $1 - 1) i`,
    [letters],
  );
  await db.query(
    `insert into postcommit.outbox_dead_letters (seq, reason, attempts, key, blocking, error)
     select seq, 'rejected', 1, key, true, 'no' from postcommit.outbox_queue where seq <= $1`,
    [letters],
  );
  await db.query(`update postcommit.outbox_queue set blocking = seq <= $1, available_at = 'infinity'`, [letters]);
}

describe.each(postgresVersions)('on PostgreSQL %i', (version) => {
  const scene = usePartitionedOutbox(version);

  test.each(['retry', 'discard'] as const)('%s frees thousands of keys with a few statements', async (operation) => {
    await scene.begin('none');
    const { db } = scene;
    await fill(db);
    let statements = 0;
    const counting = {
      query(text: string, values?: unknown[]) {
        statements++;
        return db.pool.query(text, values);
      },
    };
    const admin = new OutboxAdmin({ db: counting, schema: 'postcommit', notify: false });
    expect(await admin[operation]({ all: true })).toEqual({ count: letters });
    expect(statements).toBeLessThan(40);
    const [left] = await db.query(
      `select count(*)::integer as queued, count(available_at)::integer as parked from postcommit.outbox_queue`,
    );
    expect(left).toEqual({ queued: operation === 'retry' ? 3 * letters : 2 * letters, parked: 0 });
  });
});
