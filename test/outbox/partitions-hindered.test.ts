import { describe, expect, test } from 'vitest';
import { dropExpired } from '../../src/outbox/maintaining/drop-partition.ts';
import { postgresVersions } from '../support/postgres-versions.ts';
import { usePartitionedOutbox } from './partitioned-outbox.ts';

const keepMs = 30 * 24 * 3_600_000;

describe.each(postgresVersions)('what is in the way of partitions, on PostgreSQL %i', (version) => {
  const scene = usePartitionedOutbox(version);

  test.each([
    ['row level security', 'alter table postcommit.outbox_events enable row level security'],
    [
      'a function bound to the log',
      'create function f() returns bigint begin atomic select count(*) from postcommit.outbox_events; end',
    ],
    [
      'a rule',
      'create table t (x text); create rule r as on insert to t do also select 1 from postcommit.outbox_events',
    ],
    [
      'a foreign key',
      'create table t (x uuid primary key); alter table postcommit.outbox_events add foreign key (id) references t not valid',
    ],
    ['a unique index', 'create unique index on postcommit.outbox_events (aggregate_id, seq)'],
    ['a publication', 'create publication p for table postcommit.outbox_events'],
    ['seqs that do not fit', `select setval('postcommit.outbox_events_seq_seq', 1000000000000)`],
  ])('%s refuses the conversion, which leaves nothing behind', async (_what, sql) => {
    await scene.begin('none');
    await scene.emit('one');
    await scene.db.query(sql);
    await expect(scene.outbox.admin.partitions.convert('day')).rejects.toMatchObject({
      code: 'POSTCOMMIT_E_CANNOT_PARTITION',
    });
    const left = await scene.db.query(`select conname from pg_constraint where conname like '%bound'`);
    expect(left).toEqual([]);
    expect(await scene.outbox.admin.partitions.list()).toMatchObject({ unit: 'none' });
  });

  test('a conversion that fails half-way takes its constraints back', async () => {
    await scene.begin('none');
    await scene.emit('one');
    await scene.db.query('create table postcommit.outbox_events_p0 ()');
    await expect(scene.outbox.admin.partitions.convert('day')).rejects.toMatchObject({
      code: 'POSTCOMMIT_E_CANNOT_PARTITION',
    });
    expect(await scene.db.query(`select conname from pg_constraint where conname like '%bound'`)).toEqual([]);
    await scene.emit('two');
    expect(await scene.deliver()).toEqual(['one', 'two']);
  });

  test('a trigger keeps its state, and a sequence that was moved continues', async () => {
    await scene.begin('none');
    await scene.db.query(`alter table postcommit.outbox_events enable always trigger outbox_events_enqueue;
      alter table postcommit.outbox_events alter seq restart with 100`);
    await scene.outbox.admin.partitions.convert('day');
    const [{ tgenabled }] = await scene.db.query(
      `select tgenabled from pg_trigger
        where tgname = 'outbox_events_enqueue' and tgrelid = 'postcommit.outbox_events'::regclass`,
    );
    expect(tgenabled).toBe('A');
    await scene.emit('one');
    expect(await scene.deliver()).toEqual(['one']);
  });

  test('a partition that cannot be dropped keeps no other one', async () => {
    await scene.begin();
    for (const payload of ['one', 'two', 'three']) {
      await scene.emit(payload);
      await scene.outbox.admin.partitions.rotate();
    }
    await scene.deliver();
    for (const number of [0, 1, 2]) await scene.closeLongAgo(number);
    await scene.db.query('create view mine as select * from postcommit.outbox_events_p0');
    const result = await dropExpired(scene.db.pool, 'postcommit', { keepMs });
    expect(result).toMatchObject({
      dropped: [1, 2],
      kept: [{ number: 0, reason: expect.stringContaining('refuses') }],
    });
    expect(result.kept[0]?.reason).toContain('view public.mine depends on table');
  });

  test('the same id may be a dead letter of two partitions', async () => {
    await scene.begin();
    const id = '01920000-0000-7000-8000-000000000001';
    for (const number of [0, 1]) {
      const event = { id, type: 'x', aggregate: ['a', '1'] as const, payload: 'poison' };
      await scene.outbox.transaction((_tx, emit) => emit(event));
      await scene.deliver();
      await scene.outbox.admin.partitions.rotate();
      await scene.closeLongAgo(number);
    }
    expect(await dropExpired(scene.db.pool, 'postcommit', { keepMs })).toMatchObject({ dropped: [0, 1], kept: [] });
    expect(await scene.db.query('select from postcommit.outbox_events where id = $1', [id])).toHaveLength(2);
  });

  test('dead letters that are too large to be copied while writers wait keep their partition', async () => {
    await scene.begin();
    await scene.emit('poison');
    await scene.deliver();
    await scene.outbox.admin.partitions.rotate();
    await scene.closeLongAgo(0);
    await scene.db.query(
      `update postcommit.outbox_events set payload = to_jsonb((
         select string_agg(md5(n::text), '') from generate_series(1, 200000) n))`,
    );
    const { kept } = await dropExpired(scene.db.pool, 'postcommit', { keepMs });
    expect(kept).toEqual([{ number: 0, reason: expect.stringContaining('too large') }]);
  });
});
