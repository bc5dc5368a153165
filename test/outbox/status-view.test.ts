import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import type { EventStatus, EventSummary } from '../../src/index.ts';
import { Scene, type SceneEvent } from '../admin/scene.ts';
import { until } from '../support/wait.ts';

/** Every state that there is, and how users know it. */
const states = {
  delivered: 'SENT',
  deliveredAtSecondAttempt: 'SENT',
  deliveredAfterRetry: 'SENT',
  deliveredAgain: 'SENT',
  dead: 'FAILED',
  discarded: 'FAILED',
  deadAfterReplay: 'FAILED',
  held: 'FAILED',
  ready: 'PENDING',
  toBeDeliveredAgain: 'PENDING',
  delayed: 'PENDING',
  inBackoff: 'PENDING',
  behindBackoff: 'PENDING',
  behindHeld: 'PENDING',
  leftByLostRelay: 'PENDING',
  shelved: 'PENDING',
  shelvedAfterFailure: 'PENDING',
  shelvedAfterDelivery: 'PENDING',
  underWay: 'PROCESSING',
  claimed: 'PROCESSING',
} as const satisfies Record<string, EventStatus>;
type State = keyof typeof states;

describe('the view outbox_status', () => {
  let scene: Scene;
  const ids = {} as Record<State, string>;
  let aggregates = 0;

  async function emit(...events: [state: State, event?: SceneEvent][]): Promise<void> {
    const aggregate = ['order', String(++aggregates)] as const;
    const emitted = await scene.emit(events.map(([, event]) => ({ aggregate, ...event })));
    for (const [i, [state]] of events.entries()) ids[state] = emitted[i] as string;
  }

  beforeAll(async () => {
    scene = await Scene.create();
    const skipping = await scene.relay({ retry: { delaysMs: [1] } });
    await emit(['delivered']);
    await emit(['deliveredAtSecondAttempt', { payload: { does: 'fail', times: 1 } }]);
    await emit(['deliveredAgain']);
    await emit(['toBeDeliveredAgain']);
    await emit(['shelvedAfterDelivery']);
    for (const state of ['deliveredAfterRetry', 'dead', 'discarded'] as const) {
      await emit([state, { payload: { does: 'reject' } }]);
    }
    await scene.untilStatus('SENT', 5);
    await scene.untilStatus('FAILED', 3);
    scene.healed = true;
    await scene.admin.retry({ ids: [ids.deliveredAfterRetry] });
    await scene.admin.replay({ ids: [ids.deliveredAgain] });
    await scene.admin.discard({ ids: [ids.discarded] });
    await until(async () => (await scene.admin.find(ids.deliveredAgain))?.deliveries.length === 2, {
      what: 'a replay',
    });
    await scene.untilStatus('SENT', 6);
    await emit(['deadAfterReplay', { payload: { does: 'reject' } }]);
    await scene.untilStatus('SENT', 7);
    scene.healed = false;
    await scene.admin.replay({ ids: [ids.deadAfterReplay] });
    await scene.untilStatus('FAILED', 3);
    await skipping.stop();

    await emit(['shelved']);
    await emit(['shelvedAfterFailure']);
    await scene.db.query(
      `update postcommit.outbox_queue set attempts = 2
        where seq = (select seq from postcommit.outbox_events where id = $1)`,
      [ids.shelvedAfterFailure],
    );
    await scene.admin.replay({ ids: [ids.shelvedAfterDelivery] });
    const waiting = [ids.shelved, ids.shelvedAfterFailure, ids.shelvedAfterDelivery];
    await scene.shelve(waiting, ['kafka', 'webhooks'], ['work']);

    await emit(['leftByLostRelay', { delayMs: 3_600_000 }]);
    await scene.db.query(
      `with lost as (
         insert into postcommit.outbox_relays (name, host, pid, lease_until, ended_at, ended_as)
         values ('lost', 'host', 7, now(), now(), 'lost') returning token)
       update postcommit.outbox_queue set claimed_by = (select token from lost)`,
    );

    // It has room for two events and delivers one at a time, so that what is emitted once it has them stays ready.
    const room = { batchSizeMax: 2, prefetchMax: 2, inFlightMax: 1 };
    await scene.relay({ retry: { delaysMs: [3_600_000] }, poison: 'block', ...room });
    await emit(['delayed', { delayMs: 3_600_000 }]);
    await emit(['inBackoff', { payload: { does: 'fail' } }], ['behindBackoff']);
    await emit(['held', { payload: { does: 'reject' } }], ['behindHeld']);
    await scene.untilParked(1);
    await until(async () => (await scene.admin.counts()).waiting === 5, { what: 'all of these wait' });
    await emit(['underWay', { payload: { does: 'hang' } }]);
    await until(() => scene.hanging === 1, { what: 'one is under way' });
    await emit(['claimed']);
    await scene.untilStatus('PROCESSING', 2);
    await scene.admin.replay({ ids: [ids.toBeDeliveredAgain] });
    await emit(['ready']);
  });

  afterAll(() => scene.close());

  test('knows every state', async () => {
    const rows = await scene.db.query<{ id: string; status: string }>(
      'select id, status from postcommit.outbox_status',
    );
    const statusOf = new Map(rows.map(({ id, status }) => [id, status]));
    const found = Object.fromEntries(Object.entries(ids).map(([state, id]) => [state, statusOf.get(id)]));
    expect(found).toEqual(states);
    expect(rows.length).toBe(Object.keys(states).length);
  });

  test('counts the attempts of a shelved event, and keeps the time of an earlier delivery', async () => {
    const rowOf = async (state: State) =>
      (
        await scene.db.query(
          'select status, retry_count, next_retry_at, published_at from postcommit.outbox_status where id = $1',
          [ids[state]],
        )
      )[0];
    const pending = { status: 'PENDING', next_retry_at: null };
    expect(await rowOf('shelved')).toEqual({ ...pending, retry_count: 0, published_at: null });
    expect(await rowOf('shelvedAfterFailure')).toEqual({ ...pending, retry_count: 2, published_at: null });
    expect(await rowOf('shelvedAfterDelivery')).toEqual({ ...pending, retry_count: 0, published_at: expect.any(Date) });
  });

  // The time at which each state began, in the table that knows it.
  const shelvedAt = '(select max(shelved_at) from postcommit.outbox_shelf h where h.seq = v.seq)';
  const failedAt = '(select max(failed_at) from postcommit.outbox_failures f where f.seq = v.seq)';
  const deadAt = '(select dead_at from postcommit.outbox_dead_letters d where d.seq = v.seq)';
  // A claim has no time of its own: it came after the event was emitted, and after the relay started.
  const claimedAfter = `greatest(v.created_at, (select started_at from postcommit.outbox_relays r
    join postcommit.outbox_queue q on q.claimed_by = r.token where q.seq = v.seq))`;
  const began: Record<State, string> = {
    delivered: 'v.published_at',
    deliveredAtSecondAttempt: 'v.published_at',
    deliveredAfterRetry: 'v.published_at',
    deliveredAgain: 'v.published_at',
    dead: deadAt,
    discarded: '(select discarded_at from postcommit.outbox_dead_letters d where d.seq = v.seq)',
    deadAfterReplay: deadAt,
    held: deadAt,
    ready: 'v.created_at',
    toBeDeliveredAgain: `(select to_timestamp(replay_id / 1000000.0) from postcommit.outbox_queue q where q.seq = v.seq)`,
    delayed: 'v.created_at',
    inBackoff: failedAt,
    behindBackoff: 'v.created_at',
    behindHeld: 'v.created_at',
    leftByLostRelay: 'v.created_at',
    shelved: shelvedAt,
    shelvedAfterFailure: shelvedAt,
    shelvedAfterDelivery: shelvedAt,
    underWay: claimedAfter,
    claimed: claimedAfter,
  };

  test.each(Object.entries(began))('updated_at and processed_at of an event that is %s', async (state, expected) => {
    const [row] = await scene.db.query(
      `select v.status, v.published_at, v.processed_at, v.updated_at, ${expected} as expected,
              v.updated_at between v.created_at and clock_timestamp() as plausible,
              v.updated_at > coalesce(v.published_at, '-infinity') or v.status = 'SENT' as "afterDelivery"
         from postcommit.outbox_status v where v.id = $1`,
      [ids[state as State]],
    );
    expect(row.expected).toBeInstanceOf(Date);
    expect(row.updated_at).toEqual(row.expected);
    expect(row).toMatchObject({ plausible: true, afterDelivery: true });
    // NULL until it is delivered, and again while a replay waits or has failed.
    expect(row.processed_at).toEqual(row.status === 'SENT' ? row.published_at : null);
  });

  test('agrees with admin.list, without a status and with each of them', async () => {
    const all = (await scene.admin.list({ limit: 1_000 })).events;
    const found = Object.fromEntries(
      Object.entries(ids).map(([state, id]) => [state, all.find((event) => event.id === id)?.status]),
    );
    expect(found).toEqual(states);
    for (const status of ['PENDING', 'PROCESSING', 'SENT', 'FAILED'] as const) {
      const { events } = await scene.admin.list({ status, limit: 1_000 });
      expect(events, status).toEqual(all.filter((event) => event.status === status));
    }
  });

  test('agrees with admin.find', async () => {
    for (const [state, id] of Object.entries(ids)) {
      const story = await scene.admin.find(id);
      expect(story?.status, state).toBe(states[state as State]);
      const { events } = await scene.admin.list({
        aggregate: [story?.aggregate.type ?? '', story?.aggregate.id ?? ''],
      });
      const summary = events.find((event) => event.id === id) as EventSummary;
      expect(summary.attempts, state).toBe(story?.attempts);
      expect(summary.availableAt, state).toEqual(story?.availableAt);
      expect(summary.deliveredAt, state).toEqual(story?.deliveries.at(-1)?.at);
    }
  });

  test('agrees with admin.counts', async () => {
    const count = (status: EventStatus) => Object.values(states).filter((other) => other === status).length;
    expect(await scene.admin.counts()).toMatchObject({
      pending: count('PENDING'),
      processing: count('PROCESSING'),
      delivered: count('SENT'),
      failed: count('FAILED') - 1, // One of them was discarded.
      blocked: 1,
      waiting: 5,
      shelved: 3,
    });
  });
});
