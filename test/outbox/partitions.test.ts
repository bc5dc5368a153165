import { describe, expect, test } from 'vitest';
import { migrate, migrationSql } from '../../src/index.ts';
import { dropExpired } from '../../src/outbox/maintaining/drop-partition.ts';
import { rotate } from '../../src/outbox/maintaining/rotate.ts';
import { postgresVersions } from '../support/postgres-versions.ts';
import { room, usePartitionedOutbox } from './partitioned-outbox.ts';

const keepMs = 30 * 24 * 3_600_000;

describe.each(postgresVersions)('partitions on PostgreSQL %i', (version) => {
  const scene = usePartitionedOutbox(version);

  test('a new outbox begins with the partition that was chosen, and works as one table does', async () => {
    await scene.begin('day');
    expect(await scene.states()).toEqual(['0 open', '1 spare', '2 spare']);
    expect(await scene.emit('one', 'two')).toEqual(['1', '2']);
    await scene.db.query(
      `insert into postcommit.outbox_events (aggregate_type, aggregate_id, event_type, payload)
       values ('a', '1', 'x', '"three"')`,
    );
    await scene.db.query(`select postcommit.emit('x', 'a', '1', '"four"')`);
    expect(await scene.outbox.admin.partitions.rotate()).toMatchObject({ unit: 'day', opened: 1, created: [3] });
    expect(await scene.emit('five')).toEqual([String(room)]);
    // One batch over the bound: its record is written in two rows.
    expect(await scene.deliver()).toEqual(['one', 'two', 'three', 'four', 'five']);
    const records = await scene.db.query(
      'select tableoid::regclass::text as of, seqs::text from postcommit.outbox_deliveries order by lower(seqs)',
    );
    expect(records).toEqual([
      { of: 'postcommit.outbox_deliveries_p0', seqs: '{[1,5)}' },
      { of: 'postcommit.outbox_deliveries_p1', seqs: `{[${room},${room + 1})}` },
    ]);
    const { events } = await scene.outbox.admin.list({ status: 'SENT', order: 'oldest' });
    expect(events.map(({ seq }) => seq)).toEqual(['1', '2', '3', '4', String(room)]);
    expect(await scene.outbox.admin.find(String(room))).toMatchObject({
      status: 'SENT',
      deliveries: [{ targets: ['see'] }],
    });
    expect(await scene.outbox.admin.counts()).toMatchObject({ delivered: 5, pending: 0 });
    expect(await scene.outbox.admin.replay({ all: true })).toEqual({ count: 5 });
    expect(await scene.deliver()).toEqual(['one', 'two', 'three', 'four', 'five']);
  });

  test('the printed SQL begins alike', async () => {
    await scene.begin();
    const printed = await scene.database({ migrate: false });
    await printed.query(migrationSql({ partitions: 'day' }));
    const tables = `select c.relname, c.relkind, c.relispartition, pg_get_expr(c.relpartbound, c.oid) as bound
      from pg_class c where relnamespace = 'postcommit'::regnamespace order by relname`;
    expect(await printed.query(tables)).toEqual(await scene.db.query(tables));
    await printed.query(migrationSql({ partitions: 'month', after: 999 }));
    expect(await printed.query('select value from postcommit.outbox_settings')).toEqual([{ value: 'day' }]);
  });

  test('migrate leaves a log that has had events as it is, and says so', async () => {
    await scene.begin('none');
    await scene.emit('one');
    expect(await migrate({ connectionString: scene.db.url, partitions: 'month' })).toMatchObject({
      partitions: 'none',
    });
    expect(await scene.outbox.admin.partitions.list()).toMatchObject({ unit: 'none', partitions: [] });
    await expect(migrate({ connectionString: scene.db.url, partitions: 'year' as never })).rejects.toMatchObject({
      code: 'POSTCOMMIT_E_BAD_OPTION',
    });
  });

  test('a conversion keeps everything: events, indexes, rights, comments, views, and who may not read', async () => {
    await scene.begin('none');
    await scene.emit('one', 'two');
    expect(await scene.deliver()).toEqual(['one', 'two']);
    await scene.emit('three');
    const role = `emitter_${scene.db.url.slice(-12)}`;
    await scene.db.query(`create role ${role}`);
    await scene.db.query(`grant usage on schema postcommit to ${role}; grant insert on postcommit.outbox_events to ${role};
      grant select (seq) on postcommit.outbox_events to ${role} with grant option;
      comment on table postcommit.outbox_events is 'ours';
      create view report as select count(*)::integer as events from postcommit.outbox_events`);
    const indexes = `select indexrelid::regclass::text as name, indisvalid from pg_index
      where indrelid = 'postcommit.outbox_events'::regclass and not (indisunique and not indisprimary) order by 1`;
    const before = await scene.db.query(indexes);
    const events = await scene.db.query('select * from postcommit.outbox_status order by seq');

    expect(await scene.outbox.admin.partitions.convert('day')).toEqual({ unit: 'day', converted: true, current: 1 });
    expect(await scene.db.query(indexes)).toEqual(before);
    expect(await scene.db.query('select * from postcommit.outbox_status order by seq')).toEqual(events);
    expect(await scene.states()).toEqual(['0 closed', '1 open', '2 spare', '3 spare']);
    const [rights] = await scene.db.query(
      `select has_table_privilege($1, 'postcommit.outbox_events', 'insert') as insert,
              has_table_privilege($1, 'postcommit.outbox_events', 'select') as select,
              has_column_privilege($1, 'postcommit.outbox_events', 'seq', 'select with grant option') as seq,
              obj_description('postcommit.outbox_events'::regclass) as comment`,
      [role],
    );
    expect(rights).toEqual({ insert: true, select: false, seq: true, comment: 'ours' });
    await scene.db.query(`set role ${role};
      insert into postcommit.outbox_events (aggregate_type, aggregate_id, event_type, payload) values ('a', '1', 'x', '"four"');
      reset role`);
    expect(await scene.db.query('select events from report')).toEqual([{ events: 4 }]);
    expect(await scene.deliver()).toEqual(['three', 'four']);
    expect(await scene.lastSeq()).toBe(String(room));
    await scene.db.query(`drop owned by ${role}; drop role ${role}`);
  });

  test('what is set on a partition applies to the next ones too', async () => {
    await scene.begin();
    await scene.db.query('alter table postcommit.outbox_events_p2 set (autovacuum_vacuum_insert_threshold = 5000)');
    await scene.outbox.admin.partitions.rotate();
    const options = `select c.reloptions from pg_class c where c.relname = any ($1) order by c.relname`;
    expect(await scene.db.query(options, [['outbox_events_p3', 'outbox_deliveries_p3']])).toEqual([
      { reloptions: null },
      { reloptions: ['autovacuum_vacuum_insert_threshold=5000'] },
    ]);
  });

  test('an id is unique within its partition, and a repeated one is refused with an error code', async () => {
    await scene.begin();
    const id = '0198c5a2-7d9e-7cc3-98c4-dc0c0c07398f';
    const send = () =>
      scene.outbox.transaction((_tx, emitOne) => emitOne({ id, type: 'x', aggregate: ['a', '1'], payload: 1 }));
    await send();
    await expect(send()).rejects.toMatchObject({ code: 'POSTCOMMIT_E_DUPLICATE_ID' });
    await scene.outbox.admin.partitions.rotate();
    await send();
  });

  test('converting again changes the unit, or nothing; a wrong unit and what depends on the log are refused', async () => {
    await scene.begin('none');
    const { admin } = scene.outbox;
    await scene.emit('one');
    await expect(admin.partitions.convert('year' as never)).rejects.toMatchObject({ code: 'POSTCOMMIT_E_BAD_OPTION' });
    await scene.db.query('create table mine (seq bigint references postcommit.outbox_events (seq))');
    await expect(admin.partitions.convert('day')).rejects.toMatchObject({
      code: 'POSTCOMMIT_E_CANNOT_PARTITION',
      message: expect.stringContaining('mine_seq_fkey'),
    });
    await scene.db.query('drop table mine; create materialized view old as select * from postcommit.outbox_events');
    await expect(admin.partitions.convert('day')).rejects.toMatchObject({
      code: 'POSTCOMMIT_E_CANNOT_PARTITION',
      message: expect.stringContaining('materialized view'),
    });
    await scene.db.query('drop materialized view old');
    await scene.emit('two'); // Nothing of what was refused is in its way.
    const results = await Promise.all(Array.from({ length: 6 }, () => admin.partitions.convert('day')));
    expect(results.filter(({ converted }) => converted)).toHaveLength(1);
    expect(await admin.partitions.convert('month')).toEqual({ unit: 'month', converted: false, current: 1 });
    expect((await admin.partitions.list()).unit).toBe('month');
    await scene.emit('three');
    expect(await scene.deliver()).toEqual(['one', 'two', 'three']);
  });

  test('rotates when the unit of the calendar changes, also when the clock is set back, and never twice', async () => {
    await scene.begin();
    const seqs = await scene.emit('one');
    const openedAt = (number: number, shift: string) =>
      scene.db.query(
        `update postcommit.outbox_partitions set opened_at = now() + $2::interval where number = $1 and closed_at is null`,
        [number, shift],
      );
    expect(await rotate(scene.db.pool, 'postcommit')).toEqual({ unit: 'day', current: 0, created: [] });
    await openedAt(0, '-1 day');
    const [first, second] = await Promise.all([
      rotate(scene.db.pool, 'postcommit'),
      rotate(scene.db.pool, 'postcommit'),
    ]);
    expect([first?.opened, second?.opened].sort()).toEqual([1, undefined]);
    // Nothing was written yet: it becomes the new day's.
    await openedAt(1, '-3 days');
    expect(await rotate(scene.db.pool, 'postcommit')).toEqual({ unit: 'day', current: 1, created: [] });
    seqs.push(...(await scene.emit('two')));
    // The clock was ahead when the partition was opened.
    await openedAt(1, '3 days');
    expect(await rotate(scene.db.pool, 'postcommit')).toMatchObject({ current: 2, opened: 2 });
    expect(await rotate(scene.db.pool, 'postcommit')).toEqual({ unit: 'day', current: 2, created: [] });
    seqs.push(...(await scene.emit('three')));
    expect(seqs).toEqual(['1', String(room), String(2 * room)]);
    expect(await scene.states()).toEqual(['0 closed', '1 closed', '2 open', '3 spare', '4 spare']);
    expect(await scene.deliver()).toEqual(['one', 'two', 'three']);
  });

  test('a transaction that began before a partition was created never writes into it', async () => {
    await scene.begin();
    const { admin } = scene.outbox;
    await rotate(scene.db.pool, 'postcommit'); // No transaction is left that wrote before the spares were created.
    const writer = await scene.db.pool.connect();
    const emitOne = () => writer.query(`select postcommit.emit('x', 'a', '1', '"early"')`);
    try {
      await writer.query('begin');
      await emitOne();
      // Both spares are known to it; the ones behind them are made while it is open.
      expect(await admin.partitions.rotate()).toMatchObject({ opened: 1, created: [3] });
      await emitOne();
      expect(await admin.partitions.rotate()).toMatchObject({ opened: 2, created: [4] });
      await emitOne();
      const waiting = await admin.partitions.rotate({ patienceMs: 0 });
      expect(waiting).toMatchObject({ current: 2, waiting: true, created: [] });
      expect(waiting).not.toHaveProperty('opened');
      await emitOne();
      const opening = admin.partitions.rotate();
      await writer.query('commit');
      expect(await opening).toMatchObject({ opened: 3 });
    } finally {
      writer.release();
    }
    expect(await scene.deliver()).toEqual(Array(4).fill('early'));
    const seqs = await scene.db.query('select seq::text from postcommit.outbox_events order by outbox_events.seq');
    expect(seqs.map(({ seq }) => seq)).toEqual(['1', String(room), String(2 * room), String(2 * room + 1)]);
  });

  test('an outbox that is not partitioned has nothing to rotate or to drop', async () => {
    await scene.begin('none');
    expect(await rotate(scene.db.pool, 'postcommit')).toEqual({ unit: 'none', created: [] });
    expect(await dropExpired(scene.db.pool, 'postcommit', { keepMs: 0 })).toMatchObject({ dropped: [], kept: [] });
    for (const call of [() => scene.outbox.admin.partitions.rotate(), () => scene.outbox.admin.partitions.drop(0)]) {
      await expect(call()).rejects.toMatchObject({ code: 'POSTCOMMIT_E_NOT_PARTITIONED' });
    }
  });

  test('a partition detached by hand: writers continue in the default one, and the next run opens another', async () => {
    await scene.begin();
    await scene.emit('one');
    expect(await scene.deliver()).toEqual(['one']);
    await scene.db.query('alter table postcommit.outbox_events detach partition postcommit.outbox_events_p0');
    expect(await scene.states()).toEqual(['0 detached', '1 spare', '2 spare']);
    expect(await scene.emit('two')).toEqual(['2']);
    expect((await scene.outbox.admin.find('2'))?.status).toBe('PENDING');
    expect(await scene.deliver()).toEqual(['two']);
    expect((await scene.outbox.admin.find('2'))?.status).toBe('SENT');
    // The next number is taken too, by a table that an operator keeps.
    await scene.db.query('alter table postcommit.outbox_events detach partition postcommit.outbox_events_p1');
    expect(await rotate(scene.db.pool, 'postcommit')).toMatchObject({ opened: 2, current: 2, created: [3, 4] });
    expect(await scene.emit('three')).toEqual([String(2 * room)]);
    expect(await scene.deliver()).toEqual(['three']);
    // The drop leaves a detached table alone and only changes outbox_partitions.
    await scene.closeLongAgo(0);
    expect((await dropExpired(scene.db.pool, 'postcommit', { keepMs })).dropped).toMatchObject([0]);
    expect(await scene.db.query('select payload from postcommit.outbox_events_p0')).toEqual([{ payload: 'one' }]);
  });

  test('a partition that cannot be created is reported, and writers continue', async () => {
    await scene.begin();
    await scene.emit('one');
    await scene.db.query(`
      create function no_space() returns event_trigger language plpgsql as $$
        begin raise exception 'could not extend file: No space left on device' using errcode = 'disk_full'; end $$;
      create event trigger no_space on ddl_command_start when tag in ('CREATE TABLE') execute function no_space()`);
    const failed = { code: '53100', message: expect.stringContaining('No space left') };
    // Two spares are there, so the first days without space change nothing but the report.
    expect(await scene.outbox.admin.partitions.rotate()).toMatchObject({ opened: 1, created: [], error: failed });
    expect(await scene.outbox.admin.partitions.rotate()).toMatchObject({ opened: 2, created: [], error: failed });
    await scene.emit('two');
    const stuck = await scene.outbox.admin.partitions.rotate();
    expect(stuck).toMatchObject({ current: 2, created: [], error: failed });
    expect(stuck).not.toHaveProperty('opened');
    await scene.emit('three');
    await scene.db.query('alter table postcommit.outbox_events detach partition postcommit.outbox_events_p2');
    expect(await rotate(scene.db.pool, 'postcommit')).toMatchObject({ missing: 2, error: failed });
    await scene.emit('four');
    await scene.db.query('drop event trigger no_space');
    // Created in one run and opened in a later one, when no transaction is left that began before it.
    expect(await rotate(scene.db.pool, 'postcommit')).toMatchObject({ missing: 2, created: [3, 4], waiting: true });
    expect(await rotate(scene.db.pool, 'postcommit')).toMatchObject({ opened: 3, created: [5] });
    await scene.emit('five');
    const seen = await scene.deliver();
    expect(seen).toEqual(['one', 'four', 'five']); // Two events were in the detached partition.
  });
});
