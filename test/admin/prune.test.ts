import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { createOutbox, fromPg, type OutboxAdmin, type PruneOptions } from '../../src/index.ts';
import { createTestDatabase, type TestDatabase } from '../support/database.ts';
import { settleQueue } from '../support/settle-queue.ts';

let db: TestDatabase;
let admin: OutboxAdmin;

beforeAll(async () => {
  db = await createTestDatabase();
  admin = createOutbox({ db: fromPg(db.pool) }).admin;
});

afterAll(() => db.close());

beforeEach(async () => {
  await db.query(
    'truncate postcommit.outbox_events, postcommit.outbox_queue, postcommit.outbox_deliveries, postcommit.processed_events',
  );
  await db.query(`insert into postcommit.outbox_events (aggregate_type, aggregate_id, event_type, payload, created_at)
                  select 'thing', n::text, 'x', '1', now() - interval '2 days' from generate_series(1, 2500) n`);
  await settleQueue(db);
  // Many at the very same moment, as one transaction leaves them: more than a chunk.
  await db.query(`insert into postcommit.processed_events
                  select 'mail', gen_random_uuid(), now() - interval '2 days' from generate_series(1, 2500)`);
});

const dayMs = 86_400_000;

describe('admin.prune', () => {
  test('a dry run counts what the real one removes', async () => {
    const would = await admin.prune({ olderThanMs: dayMs, dryRun: true });
    expect(would).toMatchObject({ events: 2_500, processed: 2_500 });
    expect(await admin.prune({ olderThanMs: dayMs })).toEqual(would);
    expect(await admin.prune({ olderThanMs: dayMs })).toMatchObject({ events: 0, processed: 0 });
  });

  test('Infinity removes nothing, and each has its own age', async () => {
    const keep = Number.POSITIVE_INFINITY;
    expect(await admin.prune({ olderThanMs: keep })).toMatchObject({ events: 0, processed: 0 });
    const processed = await admin.prune({ olderThanMs: keep, processedOlderThanMs: dayMs });
    expect(processed).toMatchObject({ events: 0, processed: 2_500 });
    const events = await admin.prune({ olderThanMs: dayMs, processedOlderThanMs: keep });
    expect(events).toMatchObject({ events: 2_500, processed: 0 });
  });

  test('finds imported history behind newer events', async () => {
    const insert = (count: number, createdAt: string) =>
      db.query(`insert into postcommit.outbox_events (aggregate_type, aggregate_id, event_type, payload, created_at)
                select 'thing', n::text, 'x', '1', ${createdAt} from generate_series(1, ${count}) n`);
    await insert(1_500, 'now()');
    await insert(3_000, `now() - interval '2 years'`);
    await insert(1_500, 'now()');
    await insert(10, `now() - interval '2 years'`);
    await settleQueue(db);
    const would = await admin.prune({ olderThanMs: 365 * dayMs, dryRun: true });
    expect(would).toMatchObject({ events: 3_010 });
    expect(await admin.prune({ olderThanMs: 365 * dayMs })).toEqual(would);
    expect(await db.query('select count(*)::integer as n from postcommit.outbox_events')).toEqual([{ n: 5_500 }]);
  });

  test('a signal ends it', async () => {
    const result = await admin.prune({ olderThanMs: 0, signal: AbortSignal.abort() });
    expect(result).toMatchObject({ events: 0, processed: 0, interrupted: true });
  });

  test.each([
    undefined,
    null,
    30,
    {},
    { olderThanMs: -1 },
    { olderThanMs: Number.NaN },
    { olderThanMs: '30d' },
    { olderThanMs: 0.5 },
    { olderThanMs: 1e300 },
    { olderThanMs: 1, processedOlderThanMs: -1 },
    { olderThanMs: 1, olderThan: 1 },
  ])('%j is refused by code, and nothing is removed', async (given) => {
    await expect(admin.prune(given as PruneOptions)).rejects.toMatchObject({ code: 'POSTCOMMIT_E_BAD_OPTION' });
    expect(await db.query('select count(*)::integer as n from postcommit.outbox_events')).toEqual([{ n: 2_500 }]);
  });
});
