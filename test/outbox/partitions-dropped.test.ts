import { describe, expect, test } from 'vitest';
import { dropExpired } from '../../src/outbox/maintaining/drop-partition.ts';
import { rotate } from '../../src/outbox/maintaining/rotate.ts';
import { postgresVersions } from '../support/postgres-versions.ts';
import { usePartitionedOutbox } from './partitioned-outbox.ts';

const keepMs = 30 * 24 * 3_600_000;

describe.each(postgresVersions)('partitions that are dropped, on PostgreSQL %i', (version) => {
  const scene = usePartitionedOutbox(version);

  test('drops what is old and delivered; keeps what is not, and tells why', async () => {
    await scene.begin();
    await scene.emit('one');
    await scene.outbox.admin.partitions.rotate();
    await scene.emit('two');
    await scene.outbox.admin.partitions.rotate();
    expect(await dropExpired(scene.db.pool, 'postcommit', { keepMs })).toMatchObject({ dropped: [], kept: [] });
    await scene.closeLongAgo(0);
    await scene.closeLongAgo(1);
    // Retention is shorter than the age of what is not delivered: it stays.
    const notYet = { number: 0, reason: '1 of its events is not delivered yet' };
    expect(await dropExpired(scene.db.pool, 'postcommit', { keepMs })).toMatchObject({
      dropped: [],
      kept: [notYet, { ...notYet, number: 1 }],
    });
    expect(await dropExpired(scene.db.pool, 'postcommit', { keepMs: Number.POSITIVE_INFINITY })).toMatchObject({
      dropped: [],
      kept: [],
    });
    // Nor may what waits for a destination go.
    await scene.db.query(`with gone as (delete from postcommit.outbox_queue where seq = 1 returning seq)
      insert into postcommit.outbox_shelf (destination, seq, attempts, takeovers) select 'kafka', seq, 0, 0 from gone`);
    expect((await dropExpired(scene.db.pool, 'postcommit', { keepMs })).kept[0]).toMatchObject(notYet);
    await expect(scene.outbox.admin.partitions.drop(0)).rejects.toMatchObject({ code: 'POSTCOMMIT_E_PARTITION_KEPT' });
    await scene.db.query(`with gone as (delete from postcommit.outbox_shelf returning seq)
      insert into postcommit.outbox_queue (seq) select seq from gone`);
    await scene.deliver();
    expect(await dropExpired(scene.db.pool, 'postcommit', { keepMs })).toMatchObject({ dropped: [0, 1], kept: [] });
    expect(await scene.states()).toEqual(['2 open', '3 spare', '4 spare']);
    expect(await scene.db.query('select from postcommit.outbox_deliveries')).toEqual([]);
    for (const [number, code] of [
      [2, 'POSTCOMMIT_E_PARTITION_KEPT'],
      [3, 'POSTCOMMIT_E_PARTITION_KEPT'],
      [1, 'POSTCOMMIT_E_NO_SUCH_PARTITION'],
      [99, 'POSTCOMMIT_E_NO_SUCH_PARTITION'],
      [-1, 'POSTCOMMIT_E_NO_SUCH_PARTITION'],
      ['2' as never, 'POSTCOMMIT_E_NO_SUCH_PARTITION'],
    ] as const) {
      await expect(scene.outbox.admin.partitions.drop(number), String(number)).rejects.toMatchObject({ code });
    }
  });

  test('dead letters survive the drop of their partition, with their errors, and can be retried', async () => {
    await scene.begin();
    const [, poison, , given] = await scene.emit('one', 'poison', 'two', 'poison', 'three');
    expect(await scene.deliver()).toEqual(['one', 'two', 'three']);
    await scene.outbox.admin.discard({ ids: [given as string] });
    await scene.outbox.admin.partitions.rotate();
    expect((await scene.outbox.admin.partitions.list()).partitions[0]).toMatchObject({
      number: 0,
      state: 'closed',
      deadLetters: 1,
      undelivered: 0,
      events: 5,
    });
    expect(await scene.outbox.admin.partitions.drop(0)).toEqual({ number: 0, deadLetters: 1 });
    const { events } = await scene.outbox.admin.list();
    expect(events.map(({ seq, status, lastError }) => [seq, status, lastError])).toEqual([[poison, 'FAILED', 'no']]);
    // A discarded event is dropped with its partition, and so are its failures.
    expect(await scene.db.query('select seq::text from postcommit.outbox_dead_letters')).toEqual([{ seq: poison }]);
    expect(await scene.db.query('select seq::text from postcommit.outbox_failures')).toEqual([{ seq: poison }]);
    expect(await scene.db.query('select from postcommit.outbox_queue')).toEqual([]);
    await scene.db.query(`update postcommit.outbox_events set payload = '"repaired"' where seq = $1`, [poison]);
    expect(await scene.outbox.admin.retry({ all: true })).toEqual({ count: 1 });
    expect(await scene.deliver()).toEqual(['repaired']);
    expect((await scene.outbox.admin.find(poison as string))?.status).toBe('SENT');
  });

  test('does not wait: a drop that cannot get its locks is left to the next run', async () => {
    await scene.begin();
    await scene.emit('one');
    await scene.deliver();
    await scene.outbox.admin.partitions.rotate();
    await scene.closeLongAgo(0);
    const reader = await scene.db.pool.connect();
    try {
      await reader.query('begin');
      await reader.query('select from postcommit.outbox_events');
      const locked = { dropped: [], kept: [{ number: 0, reason: expect.stringContaining('another session') }] };
      expect(await dropExpired(scene.db.pool, 'postcommit', { keepMs, lockTimeoutMs: 50 })).toMatchObject(locked);
      await expect(scene.outbox.admin.partitions.drop(0, { patienceMs: 0 })).rejects.toMatchObject({
        code: 'POSTCOMMIT_E_LOG_IN_USE',
        message: expect.stringMatching(/Process \d+ \(.*idle in transaction\).* select from postcommit.outbox_events/),
      });
      await scene.emit('two'); // No emitter waits for the drop.
    } finally {
      await reader.query('rollback');
      reader.release();
    }
    expect((await dropExpired(scene.db.pool, 'postcommit', { keepMs })).dropped).toMatchObject([0]);
  });

  test('an old snapshot is refused: it would not show what is undelivered', async () => {
    await scene.begin();
    await scene.emit('one');
    await scene.outbox.admin.partitions.rotate();
    const client = await scene.db.pool.connect();
    try {
      await client.query('begin isolation level repeatable read');
      await expect(dropExpired(client, 'postcommit', { keepMs: 0 })).rejects.toThrow('READ COMMITTED');
    } finally {
      await client.query('rollback');
      client.release();
    }
  });

  test('a relay needs no right on the tables themselves to rotate and to drop', async () => {
    await scene.begin();
    await scene.emit('one');
    await scene.deliver();
    const role = `relay_${scene.db.url.slice(-12)}`;
    await scene.db.query(`create role ${role}; grant usage on schema postcommit to ${role}`);
    const client = await scene.db.pool.connect();
    try {
      await client.query(`set role ${role}`);
      await expect(rotate(client, 'postcommit', { now: true })).rejects.toMatchObject({ code: '42501' });
      await client.query('reset role');
      await client.query(`grant select on postcommit.outbox_partitions to ${role};
        grant execute on function postcommit.rotate_partitions(boolean), postcommit.sweep_partition(bigint, integer),
          postcommit.drop_partition(bigint, double precision, integer) to ${role};
        set role ${role}`);
      expect(await rotate(client, 'postcommit', { now: true })).toMatchObject({ opened: 1 });
      expect((await dropExpired(client, 'postcommit', { keepMs: 0 })).dropped).toMatchObject([0]);
    } finally {
      await client.query('reset role');
      client.release();
    }
    await scene.db.query(`drop owned by ${role}; drop role ${role}`);
  });
});
