import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { readMigrations } from '../../src/database/migrate.ts';
import { createOutbox, createRelay, fromPg, migrate, migrationSql } from '../../src/index.ts';
import { settle } from '../../src/outbox/delivering/settle.ts';
import { createTestDatabase, type TestDatabase } from '../support/database.ts';
import { schemaDump } from './schema-dump.ts';

/** What a package that knew only the first migration would have run. */
function versionOne(): string {
  const [first] = migrationSql().split('-- 0002_');
  return `${first}commit;`;
}

/** An event in every state that version 1 knows, by seq, as relays and operators would have left it. */
const statuses = ['SENT', 'PENDING', 'PENDING', 'PROCESSING', 'FAILED', 'PENDING', 'FAILED', 'PENDING'];
const inFlight = `
  select postcommit.emit('x', 'a', n::text, to_jsonb(n)) from unnest('{1,2,3,4,5,5,7,8}'::integer[]) n;
  insert into postcommit.outbox_relays (token, name, host, pid, lease_until)
    values (1, 'old', 'host', 1, now() + interval '1 hour');
  insert into postcommit.outbox_controls (destination, paused_at, reason) values ('kafka', now(), 'upgrade');

  -- 1 was delivered, 2 is ready, 3 in backoff, 4 under way.
  delete from postcommit.outbox_queue where seq = 1;
  insert into postcommit.outbox_deliveries (relay, attempts, targets, seqs) values (1, 1, '{see}', '{[1,2)}');
  update postcommit.outbox_queue set attempts = 2, available_at = now() + interval '1 hour', done = '{mail}' where seq = 3;
  insert into postcommit.outbox_failures (seq, attempt, relay, target, code, error)
    values (3, 1, 1, 'see', 'c', 'first'), (3, 2, 1, 'see', 'c', 'second');
  update postcommit.outbox_queue set lease = 1 where seq = 4;
  -- 5 is dead and holds 6, 7 is dead.
  update postcommit.outbox_queue set held = true, attempts = 1, available_at = 'infinity' where seq = 5;
  update postcommit.outbox_queue set available_at = 'infinity' where seq = 6;
  delete from postcommit.outbox_queue where seq = 7;
  insert into postcommit.outbox_dead_letters (seq, reason, attempts, key, held, error)
    select seq, 'rejected', 1, postcommit.key_hash(aggregate_type, aggregate_id, null), seq = 5, 'no'
      from postcommit.outbox_events where seq in (5, 7);
  -- 8 is delayed.
  update postcommit.outbox_queue set available_at = now() + interval '1 day' where seq = 8`;

const since = readMigrations()
  .slice(1)
  .map(({ name }) => name);
const tables = ['status', 'events', 'queue', 'deliveries', 'failures', 'dead_letters', 'relays'];

async function everyRow(database: TestDatabase): Promise<Record<string, { status?: string }[]>> {
  const rows: Record<string, { status?: string }[]> = {};
  for (const table of tables)
    rows[table] = await database.query(`select * from postcommit.outbox_${table} order by 1, 2`);
  return rows;
}

describe('from version 1 to the latest', () => {
  let database: TestDatabase;

  beforeAll(async () => {
    database = await createTestDatabase({ migrate: false });
    await database.query(versionOne());
    await database.query(inFlight);
  });

  afterAll(() => database.close());

  test('a package that needs the latest says so, and changes nothing', async () => {
    const { admin } = createOutbox({ db: fromPg(database.pool) });
    const calls: [string, () => Promise<unknown>][] = [
      ['find', () => admin.find('1')],
      ['list', () => admin.list({ status: 'PENDING' })],
      ['counts', () => admin.counts()],
      ['replay', () => admin.replay({ all: true })],
      ['destinations', () => admin.destinations()],
      ['resume', () => admin.resume('kafka')],
    ];
    for (const [name, call] of calls) {
      await expect(call(), name).rejects.toMatchObject({ code: 'POSTCOMMIT_E_MIGRATION_MISSING' });
    }
    expect(await migrate({ connectionString: database.url, dryRun: true })).toMatchObject({
      version: 1,
      applied: since,
    });
  });

  test('nothing changes for the events in flight, and a relay at work goes on', async () => {
    const before = await everyRow(database);
    expect(before.status?.map(({ status }) => status)).toEqual(statuses);
    const upgraded = await migrate({ connectionString: database.url });
    expect(upgraded).toMatchObject({ applied: since, version: since.length + 1 });
    expect(await everyRow(database)).toEqual(before);

    const { admin } = createOutbox({ db: fromPg(database.pool) });
    const { events } = await admin.list({ order: 'oldest' });
    expect(events.map(({ status }) => status)).toEqual(statuses);
    expect(await admin.counts()).toMatchObject({ pending: 4, shelved: 0, processing: 1, failed: 2, delivered: 1 });
    expect(await admin.find('3')).toMatchObject({ attempts: 2, done: ['mail'], waitingFor: [] });
    expect(await admin.destinations()).toEqual([
      { name: 'kafka', state: 'paused', waiting: 0, relays: 0, pausedAt: expect.any(Date), reason: 'upgrade' },
    ]);

    const query = (text: string, values: unknown[]) => database.pool.query({ text, values, rowMode: 'array' });
    expect(await settle(query, 'postcommit', '1', [{ seq: '4', targets: ['see'] }])).toEqual([]);
    await database.query('update postcommit.outbox_relays set ended_at = now()');
    expect(await admin.retry({ all: true })).toEqual({ count: 2 });
    const seen: unknown[] = [];
    const relay = createRelay({
      connectionString: database.url,
      handlers: { x: { see: (event) => void seen.push(event.payload) } },
    });
    expect(await relay.runOnce()).toEqual({ delivered: 4, failed: 0, rejected: 0 });
    expect(seen.sort()).toEqual([2, 5, 5, 7]);
    expect(await admin.counts()).toMatchObject({ pending: 2, waiting: 2, failed: 0, delivered: 6 });
  });

  test('the tables are the same as from scratch', async () => {
    const fresh = await createTestDatabase();
    try {
      expect(await schemaDump(database)).toEqual(await schemaDump(fresh));
    } finally {
      await fresh.close();
    }
  });
});
