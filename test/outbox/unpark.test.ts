import type pg from 'pg';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { createRelay } from '../../src/index.ts';
import { defer } from '../../src/outbox/delivering/defer.ts';
import { unpark } from '../../src/outbox/delivering/unpark.ts';
import { discard } from '../../src/outbox/operating/discard.ts';
import { requeue } from '../../src/outbox/operating/requeue.ts';
import { Scene } from '../admin/scene.ts';
import { until } from '../support/wait.ts';

/** The events of one key: one that is held, one parked behind it, and one that a relay is about to park. */
interface Line {
  held: string;
  parked: string;
  ready: string;
}

describe('events parked behind a held one', () => {
  let scene: Scene;
  let relay: pg.PoolClient;

  beforeEach(async () => {
    scene = await Scene.create();
    relay = await scene.db.pool.connect();
  });

  afterEach(async () => {
    relay.release(true);
    await scene.close();
  });

  /** Without a relay running, so that every step of one can be taken by hand. */
  async function line({ withParked }: { withParked: boolean }): Promise<Line> {
    const stopped = await scene.relay({ poison: 'block' });
    const held = await scene.emitOne({ payload: { does: 'reject' } });
    await scene.untilStatus('FAILED', 1);
    const parked = withParked ? await scene.emitOne() : '';
    if (withParked) await scene.untilParked(1);
    await stopped.stop();
    const ready = await scene.emitOne();
    return { held, parked, ready };
  }

  /** Until a statement of the operator's waits for a lock that the relay's transaction has. */
  async function untilWaiting(): Promise<void> {
    const sql = `select from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'`;
    await until(async () => (await scene.db.query(sql)).length > 0, { what: 'the operator waits for the lock' });
  }

  async function deliverAll(ids: string[]): Promise<void> {
    scene.healed = true;
    await scene.relay();
    await until(() => scene.delivered.length >= ids.length, { what: 'all are delivered' });
    expect(scene.delivered).toEqual(ids);
  }

  /** What an operator does to the held one; without what is done at the end of every operation. */
  async function freeAndUnpark(held: string): Promise<void> {
    await requeue(scene.db.pool, 'postcommit', { seqs: [await scene.seqOf(held)] }, { after: '0', limit: 1 });
    await unpark(scene.db.pool, 'postcommit');
  }

  test('directly, by a relay that got its lock before the operator, are unparked', async () => {
    const { held, ready } = await line({ withParked: false });
    await relay.query('begin');
    await defer(relay, 'postcommit', [await scene.seqOf(ready)]);
    const freed = freeAndUnpark(held);
    await untilWaiting();
    await relay.query('commit');
    await freed;
    expect(await scene.parked()).toBe(0);
    await deliverAll([held, ready]);
  });

  test('behind another parked one, by a relay that commits after the operator looked, are unparked', async () => {
    const { held, parked, ready } = await line({ withParked: true });
    await relay.query('begin');
    await defer(relay, 'postcommit', [await scene.seqOf(ready)]);
    const freed = freeAndUnpark(held);
    await untilWaiting(); // For the parked one: in the snapshot of that statement the third is still ready.
    await relay.query('commit');
    await freed;
    expect(await scene.parked()).toBe(0);
    await deliverAll([held, parked, ready]);
  });

  test('are not parked by a relay that comes after the operator', async () => {
    const { held, ready } = await line({ withParked: false });
    const seq = await scene.seqOf(ready);
    await relay.query('begin');
    await relay.query('select from postcommit.outbox_queue where blocking for update');
    await defer(scene.db.pool, 'postcommit', [seq]);
    expect(await scene.parked(), 'while the held one is locked').toBe(0);
    await relay.query('commit');
    await scene.admin.retry({ ids: [held] });
    await defer(scene.db.pool, 'postcommit', [seq]);
    expect(await scene.parked(), 'when it is freed').toBe(0);
  });

  test('are unparked by the next operation when an operator was killed before it could', async () => {
    const { held, parked, ready } = await line({ withParked: true });
    const selection = { seqs: [await scene.seqOf(held)] };
    await requeue(scene.db.pool, 'postcommit', selection, { after: '0', limit: 1 });
    expect(await scene.parked()).toBe(1);
    expect(await scene.admin.retry({ ids: [held] })).toEqual({ count: 0 });
    expect(await scene.parked()).toBe(0);
    await deliverAll([held, parked, ready]);
  });

  test.each([
    ['retry', requeue],
    ['discard', discard],
  ])(
    'are unparked by a running relay when an operator was killed in a %s before it could',
    async (operation, resolve) => {
      await scene.relay({ poison: 'block', leaseMs: 500 });
      const [held, ...followers] = (await scene.emit([{ payload: { does: 'reject' } }, {}, {}])) as [
        string,
        ...string[],
      ];
      await scene.untilParked(2);
      scene.healed = true;
      await resolve(scene.db.pool, 'postcommit', { seqs: [await scene.seqOf(held)] }, { after: '0', limit: 1 });
      const expected = operation === 'retry' ? [held, ...followers] : followers;
      await until(() => scene.delivered.length === expected.length, { what: 'the key continues', timeoutMs: 20_000 });
      expect(scene.delivered).toEqual(expected);
    },
  );

  test('are unparked by runOnce when an operator was killed before it could', async () => {
    const { held, parked, ready } = await line({ withParked: true });
    const selection = { seqs: [await scene.seqOf(held)] };
    await discard(scene.db.pool, 'postcommit', selection, { after: '0', limit: 1 });
    const delivered: string[] = [];
    const relay = createRelay({
      connectionString: scene.db.url,
      handlers: { 'order.created': { work: ({ id }) => void delivered.push(id) } },
    });
    expect(await relay.runOnce()).toMatchObject({ delivered: 2, complete: true });
    expect(delivered).toEqual([parked, ready]);
  });

  test('stay parked when another held one is still before them', async () => {
    const { held, parked } = await line({ withParked: true });
    const other = await scene.relay({ poison: 'block' });
    const [second, behind] = (await scene.emit([
      { aggregate: ['order', '2'], payload: { does: 'reject' } },
      { aggregate: ['order', '2'] },
    ])) as [string, string];
    await scene.untilParked(3);
    await other.stop();
    await scene.admin.discard({ ids: [second] });
    expect(
      await scene.db.query(
        `select e.id from postcommit.outbox_queue q join postcommit.outbox_events e using (seq)
        where q.available_at is null`,
      ),
    ).toEqual([{ id: behind }]);
    expect((await scene.admin.find(parked))?.waitingBehind).toMatchObject({ id: held });
  });

  test('are unparked up to the next held one', async () => {
    // A replay that fails puts a second held event in front of the first.
    scene.healed = true;
    const first = await scene.relay({ poison: 'block' });
    const [early, next] = (await scene.emit([{ payload: { does: 'reject' } }, {}])) as [string, string];
    await scene.untilStatus('SENT', 2);
    scene.healed = false;
    const [late, last] = (await scene.emit([{ payload: { does: 'reject' } }, {}])) as [string, string];
    await scene.untilParked(1);
    await first.stop();
    await scene.admin.replay({ ids: [early, next] });
    const second = await scene.relay({ poison: 'block' });
    await scene.untilParked(2);
    await second.stop();

    await scene.admin.discard({ ids: [early] });
    expect(await scene.admin.find(next)).not.toHaveProperty('waitingBehind');
    expect((await scene.admin.find(last))?.waitingBehind?.id).toBe(next);
    expect(await scene.parked(), 'only the one behind the later held one').toBe(1);
    await scene.admin.discard({ ids: [late] });
    expect(await scene.parked()).toBe(0);
  });
});
