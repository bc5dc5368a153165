import type pg from 'pg';
import { describe, expect, onTestFinished, test } from 'vitest';
import { createOutbox, createRelay, fromPg, type Outbox } from '../../src/index.ts';
import { runHere } from '../cli/fake-terminal.ts';
import { createTestDatabase, type TestDatabase } from '../support/database.ts';
import { setForDatabase } from '../support/database-settings.ts';
import { postgresVersions, serverUrlOf } from '../support/postgres-versions.ts';
import { quietPool } from '../support/quiet-pool.ts';

const dayMs = 86_400_000;

interface Scene {
  db: TestDatabase;
  outbox: Outbox<pg.PoolClient>;
  /** Emits three events of one aggregate: by emit(), by emit(jsonb) for two. Returns nothing. */
  emit(): Promise<void>;
  /** Delivers what is queued. Returns the payloads in the order of their delivery. */
  deliver(): Promise<unknown[]>;
}

describe.each(postgresVersions)('session_replication_role = replica, PostgreSQL %i', (version) => {
  /** An outbox in a database whose sessions are all replicas. */
  async function begin(): Promise<Scene> {
    const db = await createTestDatabase({ serverUrl: serverUrlOf(version) });
    onTestFinished(() => db.close());
    await setForDatabase(db, 'session_replication_role', 'replica');
    const pool = quietPool(db.url, { max: 2 });
    onTestFinished(() => pool.end());
    const outbox = createOutbox<pg.PoolClient>({ db: fromPg(pool), notify: false });
    let next = 0;
    const event = () => ({ type: 'x', aggregate: ['a', '1'] as const, payload: ++next });
    return {
      db,
      outbox,
      async emit() {
        await outbox.transaction((_tx, emit) => emit(event()));
        await outbox.transaction((_tx, emit) => emit([event(), event()]));
      },
      async deliver() {
        const seen: unknown[] = [];
        const handlers = { x: { see: ({ payload }: { payload: unknown }) => void seen.push(payload) } };
        await createRelay({ connectionString: db.url, handlers, maintenance: false }).runOnce();
        return seen;
      },
    };
  }

  test('events are queued and delivered, also once the log is partitioned', async () => {
    const { db, outbox, emit, deliver } = await begin();
    await emit();
    expect(await deliver()).toEqual([1, 2, 3]);
    await outbox.admin.partitions.convert('day');
    await emit();
    await db.query(`insert into postcommit.outbox_events (aggregate_type, aggregate_id, event_type, payload)
                    values ('a', '1', 'x', '7')`);
    expect(await deliver()).toEqual([4, 5, 6, 7]);
    expect((await outbox.admin.doctor({ only: ['triggers', 'unqueued'] })).worst).toBe('ok');
  });

  test('every trigger of the outbox fires in every mode', async () => {
    const { db } = await begin();
    const triggers = await db.query<{ name: string }>(
      `select t.tgname as name from pg_trigger t join pg_class c on c.oid = t.tgrelid
        where c.relnamespace = 'postcommit'::regnamespace and not t.tgisinternal and t.tgenabled <> 'A'`,
    );
    expect(triggers).toEqual([]);
  });

  test('what was never queued is kept by retention, found by the doctor, and delivered by requeueUnqueued', async () => {
    const { db, outbox, emit, deliver } = await begin();
    const { admin } = outbox;
    const age = `update postcommit.outbox_events set created_at = now() - interval '60 days'`;
    await emit();
    expect(await deliver()).toEqual([1, 2, 3]);
    // A data-only restore with --disable-triggers leaves them like this.
    await db.query(
      'alter table postcommit.outbox_events disable trigger all; alter table postcommit.outbox_events enable trigger all',
    );
    await emit();
    await db.query(age);

    expect(await admin.prune({ olderThanMs: dayMs, dryRun: true })).toMatchObject({ events: 3, kept: { unqueued: 3 } });
    expect(await admin.prune({ olderThanMs: dayMs })).toMatchObject({ events: 3, kept: { unqueued: 3 } });
    expect(await db.query('select payload from postcommit.outbox_events order by seq')).toEqual([
      { payload: 4 },
      { payload: 5 },
      { payload: 6 },
    ]);

    expect(await admin.counts()).toMatchObject({
      pending: 0,
      delivered: 0,
      unqueued: 3,
      exact: { delivered: true, unqueued: true },
    });
    const run = (...args: string[]) => runHere(args, { env: { DATABASE_URL: db.url } });
    const status = (await run('status')).stdout;
    expect(status).toMatch(/^delivered +0$/m);
    expect(status).toMatch(/^unqueued +3 {2}never queued, to queue them: npx postcommit requeue-unqueued$/m);
    const { events } = await admin.list();
    expect(await admin.find(events[0]?.id ?? '')).toMatchObject({ status: 'PENDING', unqueued: true });
    const story = (await run('events', events[0]?.id ?? '')).stdout;
    expect(story).toContain('it was never queued, so no relay delivers it');
    expect(story).toContain('npx postcommit requeue-unqueued   queue this event');

    const found = await admin.doctor({ only: ['triggers', 'unqueued'] });
    expect(found.findings).toMatchObject([
      {
        check: 'unqueued',
        severity: 'critical',
        what: '3 events in the log were never queued or delivered',
        fix: 'npx postcommit requeue-unqueued',
      },
      { check: 'triggers', severity: 'warning', fix: expect.stringContaining('enable always trigger') },
      { check: 'triggers', severity: 'warning' },
      { check: 'triggers', severity: 'warning' },
    ]);
    for (const { check, fix } of found.findings) if (check === 'triggers') await db.query(fix ?? '');
    expect(await admin.requeueUnqueued()).toEqual({ count: 3 });
    expect((await admin.doctor({ only: ['triggers', 'unqueued'] })).worst).toBe('ok');
    expect(await admin.requeueUnqueued()).toEqual({ count: 0 });
    expect(await admin.counts()).toMatchObject({ pending: 3, delivered: 0, unqueued: 0 });
    expect(await admin.find(events[0]?.id ?? '')).toMatchObject({ status: 'PENDING', unqueued: false });
    expect((await run('status')).stdout).not.toContain('unqueued');
    expect(await deliver()).toEqual([4, 5, 6]);
    await db.query(age);
    expect(await admin.prune({ olderThanMs: dayMs })).toMatchObject({ events: 3, kept: { unqueued: 0 } });
  });

  test('a partition with an event that was never queued is not dropped', async () => {
    const { db, outbox, emit, deliver } = await begin();
    const { admin } = outbox;
    await emit();
    await admin.partitions.convert('day');
    await db.query('alter table postcommit.outbox_events disable trigger outbox_events_enqueue');
    await emit();
    await db.query('alter table postcommit.outbox_events enable always trigger outbox_events_enqueue');
    await emit();
    expect(await deliver()).toEqual([1, 2, 3, 7, 8, 9]);
    await admin.partitions.rotate();
    await db.query(
      `update postcommit.outbox_partitions set closed_at = now() - interval '60 days' where closed_at is not null`,
    );

    const { partitions, keptPartitions } = await admin.prune({ olderThanMs: dayMs });
    expect(partitions).toEqual([0]);
    expect(keptPartitions).toEqual([
      { number: 1, reason: '3 of its events were never queued: run npx postcommit requeue-unqueued' },
    ]);
    const { partitions: listed } = await admin.partitions.list();
    expect(listed.map(({ number, undelivered, unqueued }) => ({ number, undelivered, unqueued }))).toMatchObject([
      { number: 1, undelivered: 3, unqueued: 3 },
      { number: 2, undelivered: 0, unqueued: 0 },
      ...listed.slice(2).map(() => ({ undelivered: 0, unqueued: 0 })),
    ]);
    const shown = await runHere(['partitions'], { env: { DATABASE_URL: db.url } });
    expect(shown.stdout).toContain('to queue them: npx postcommit requeue-unqueued');
    await expect(admin.partitions.drop(1)).rejects.toMatchObject({ code: 'POSTCOMMIT_E_PARTITION_KEPT' });
    expect(await admin.requeueUnqueued()).toEqual({ count: 3 });
    expect(await deliver()).toEqual([4, 5, 6]);
    expect((await admin.partitions.list()).partitions[0]).toMatchObject({ number: 1, undelivered: 0, unqueued: 0 });
    expect(await admin.prune({ olderThanMs: dayMs })).toMatchObject({ partitions: [1], keptPartitions: [] });
  });
});
