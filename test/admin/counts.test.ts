import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { count } from '../../src/outbox/operating/count.ts';
import { until } from '../support/wait.ts';
import { Scene } from './scene.ts';

const allExact = {
  pending: true,
  processing: true,
  waiting: true,
  shelved: true,
  blocked: true,
  failed: true,
  delivered: true,
};
const allExactWithUnqueued = { ...allExact, unqueued: true };

describe('admin.counts', () => {
  let scene: Scene;

  beforeEach(async () => {
    scene = await Scene.create();
  });

  afterEach(async () => {
    await scene.close();
  });

  test('of an empty outbox are zero', async () => {
    expect(await scene.admin.counts()).toEqual({
      pending: 0,
      processing: 0,
      waiting: 0,
      shelved: 0,
      blocked: 0,
      failed: 0,
      delivered: 0,
      unqueued: 0,
      oldestPendingMs: null,
      exact: allExactWithUnqueued,
    });
  });

  test('tell every state apart', async () => {
    await scene.relay({ poison: 'block', retry: { delaysMs: [3_600_000] } });
    const of = (id: number) => ({ aggregate: ['order', String(id)] as const });
    await scene.emit([
      { ...of(1) }, // delivered
      { ...of(2) }, // delivered
      { ...of(3), payload: { does: 'hang' } }, // in the relay's hands
      { ...of(4), payload: { does: 'fail' } }, // in backoff
      { ...of(4) }, // behind it
      { ...of(5), delayMs: 3_600_000 }, // delayed
      { ...of(6), payload: { does: 'reject' } }, // dead, and holds its key
      { ...of(6) }, // behind it
      { ...of(6) }, // behind it
      { ...of(7), payload: { does: 'reject' } }, // dead, and given up below
      { ...of(8), key: null, payload: { does: 'reject' } }, // dead, and holds nothing as it has no key
    ]);
    await scene.untilStatus('FAILED', 3);
    await scene.admin.discard({ aggregate: ['order', 7] });
    await scene.untilParked(2);
    await scene.untilStatus('SENT', 2);
    await until(async () => (await scene.admin.counts()).waiting === 5, { what: 'the follower is deferred' });
    expect(await scene.admin.counts()).toEqual({
      pending: 5,
      processing: 1,
      waiting: 5,
      shelved: 0,
      blocked: 1,
      failed: 2,
      delivered: 2,
      unqueued: 0,
      oldestPendingMs: null,
      exact: allExactWithUnqueued,
    });
  });

  test('tell for how long the oldest event has been due, by the database', async () => {
    await scene.emit([{}, { aggregate: ['order', '2'] }]);
    const first = (await scene.admin.counts()).oldestPendingMs as number;
    expect(first).toBeGreaterThanOrEqual(0);
    expect(first).toBeLessThan(30_000);
    await scene.db.query(`update postcommit.outbox_events set created_at = now() - interval '1 hour'`);
    expect((await scene.admin.counts()).oldestPendingMs).toBeGreaterThanOrEqual(3_600_000);
    // A delayed event is not late before its time, and then only since then.
    await scene.db.query(`update postcommit.outbox_queue set available_at = now() + interval '1 hour'`);
    expect((await scene.admin.counts()).oldestPendingMs).toBeNull();
    await scene.db.query(`update postcommit.outbox_queue set available_at = now() - interval '1 minute'`);
    const late = (await scene.admin.counts()).oldestPendingMs as number;
    expect(late).toBeGreaterThanOrEqual(60_000);
    expect(late).toBeLessThan(600_000);
  });

  test('past the cap are estimates, and say so', async () => {
    await scene.db.query(
      `insert into postcommit.outbox_events (aggregate_type, aggregate_id, event_type, payload)
       select 'order', i::text, 'order.created', '{}' from generate_series(1, 5000) i`,
    );
    await scene.db.query('delete from postcommit.outbox_queue where seq <= 3000');
    await scene.db.query(
      `insert into postcommit.outbox_dead_letters (seq, reason, attempts, error, discarded_at)
       select seq, 'rejected', 1, 'no', case when seq % 2 = 0 then now() end
         from postcommit.outbox_events where seq <= 1000`,
    );
    await scene.db.query('vacuum analyze');
    expect(await count(scene.db.pool, 'postcommit')).toMatchObject({
      pending: 2_000,
      failed: 500,
      delivered: 2_000,
      exact: allExact,
    });
    const counts = await count(scene.db.pool, 'postcommit', 100);
    expect(counts.exact).toEqual({
      ...allExact,
      pending: false,
      processing: false,
      blocked: false,
      failed: false,
      delivered: false,
    });
    for (const [name, expected] of [
      ['pending', 2_000],
      ['failed', 500],
      ['delivered', 2_000],
    ] as const) {
      expect(counts[name] / expected, `${name}: ${counts[name]}`).toBeGreaterThan(0.9);
      expect(counts[name] / expected, `${name}: ${counts[name]}`).toBeLessThan(1.1);
    }
  });

  test('past the cap are at least what was counted when the table was never analysed', async () => {
    await scene.db.query('alter table postcommit.outbox_queue set (autovacuum_enabled = false)');
    await scene.emit(Array.from({ length: 50 }, () => ({})));
    const counts = await count(scene.db.pool, 'postcommit', 10);
    expect(counts.pending).toBeGreaterThanOrEqual(11);
    expect(counts.exact.pending).toBe(false);
  });
});

describe('admin.relays', () => {
  let scene: Scene;

  beforeEach(async () => {
    scene = await Scene.create();
  });

  afterEach(async () => {
    await scene.close();
  });

  test('shows which relays are alive, overdue, stopped and lost', async () => {
    const stopped = await scene.relay({ name: 'stopped' });
    await stopped.stop();
    await scene.db.query(
      `insert into postcommit.outbox_relays (name, host, pid, lease_until, ended_at, ended_as)
       values ('lost', 'host', 7, now() - interval '1 hour', now(), 'lost')`,
    );
    const alive = await scene.relay({ name: 'alive' });
    await scene.db.query(
      `insert into postcommit.outbox_relays (name, host, pid, lease_until) values ('overdue', 'host', 8, now() - interval '1 ms')`,
    );
    const relays = await scene.admin.relays();
    expect(relays.map(({ name, state }) => [name, state])).toEqual([
      ['overdue', 'overdue'],
      ['alive', 'alive'],
      ['lost', 'lost'],
      ['stopped', 'stopped'],
    ]);
    expect(relays[1]).toEqual({
      token: alive.stats().token,
      name: 'alive',
      host: expect.any(String),
      pid: process.pid,
      state: 'alive',
      startedAt: expect.any(Date),
      heartbeatAt: expect.any(Date),
      leaseUntil: expect.any(Date),
      stats: expect.any(Object),
      version: expect.any(String),
      targets: expect.any(Array),
      fingerprint: expect.any(String),
      queues: ['default'],
      sessionLock: true,
    });
    expect(relays[3]?.endedAt).toBeInstanceOf(Date);
  });
});
