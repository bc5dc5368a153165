import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { type EventDetails, Reject } from '../../src/index.ts';
import { Scene } from '../admin/scene.ts';
import { until } from '../support/wait.ts';

const kinds = ['atOnce', 'afterRetries', 'dead', 'discarded', 'replayed', 'pending', 'rolledBack'] as const;
type Kind = (typeof kinds)[number];

/** Did we emit it, when, to where, after how many attempts, with which errors? */
describe('G9 answerable', () => {
  let scene: Scene;
  let before: Date;
  let after: Date;
  const ids = {} as Record<Kind, string>;

  const mail = (event: { payload: Kind }, ctx: { attempt: number }) => {
    if (event.payload === 'afterRetries' && ctx.attempt === 1) throw new Error('the mail server is busy');
    if (event.payload === 'discarded') throw new Reject('no such customer');
  };
  const ledger = (event: { payload: Kind }, ctx: { attempt: number }) => {
    if (event.payload === 'afterRetries' && ctx.attempt <= 2) throw new Error(`the ledger is closed, ${ctx.attempt}`);
    if (event.payload === 'dead') throw new Error('the ledger is lost');
  };

  async function databaseTime(): Promise<Date> {
    const [row] = await scene.db.query<{ at: Date }>('select clock_timestamp() as at');
    return row?.at as Date;
  }

  beforeAll(async () => {
    scene = await Scene.create();
    before = await databaseTime();
    for (const kind of kinds) {
      const emitted = scene.outbox.transaction(async (_tx, emit) => {
        const delayMs = kind === 'pending' ? 3_600_000 : 0;
        ids[kind] = await emit({ type: 'order.created', aggregate: ['order', kind], payload: kind, delayMs });
        if (kind === 'rolledBack') throw new Error('changed my mind');
      });
      await (kind === 'rolledBack' ? expect(emitted).rejects.toThrow('changed my mind') : emitted);
    }
    await scene.relay({ handlers: { 'order.created': { mail, ledger } }, retry: { delaysMs: [1, 1] } });
    await scene.untilStatus('SENT', 3);
    await scene.untilStatus('FAILED', 2);
    await scene.admin.discard({ ids: [ids.discarded] });
    await scene.admin.replay({ ids: [ids.replayed] });
    await until(async () => (await scene.admin.find(ids.replayed))?.deliveries.length === 2, { what: 'the replay' });
    after = await databaseTime();
  });

  afterAll(() => scene.close());

  const view = (kind: Kind) =>
    scene.db.query(
      `select event_type, aggregate_type, aggregate_id, status, retry_count, next_retry_at, created_at, published_at,
              last_error from postcommit.outbox_status where id = $1`,
      [ids[kind]],
    );

  /** What both ways of asking must agree on, and every time within those of the test. */
  async function answer(kind: Kind): Promise<{ story: EventDetails; row: Record<string, unknown> }> {
    const story = await scene.admin.find(ids[kind]);
    const [row] = await view(kind);
    if (!story || !row) throw new Error(`there is no answer for ${kind}`);
    expect(story).toMatchObject({
      id: ids[kind],
      type: 'order.created',
      aggregate: { type: 'order', id: kind },
      payload: kind,
      status: row.status,
      createdAt: row.created_at,
    });
    expect(row).toMatchObject({ event_type: 'order.created', aggregate_type: 'order', aggregate_id: kind });
    expect(story.deliveries.at(-1)?.at ?? null).toEqual(row.published_at);
    const times = [story.createdAt, ...story.failures.map(({ at }) => at), ...story.deliveries.map(({ at }) => at)];
    for (const at of times) {
      expect(at.getTime()).toBeGreaterThanOrEqual(before.getTime());
      expect(at.getTime()).toBeLessThanOrEqual(after.getTime());
    }
    return { story, row };
  }

  const failed = (attempt: number, target: string, error: string) => ({ attempt, target, error, relay: 'tester' });
  const toBoth = { targets: expect.toSatisfy((targets: string[]) => [...targets].sort().join() === 'ledger,mail') };

  test('delivered at once', async () => {
    const { story, row } = await answer('atOnce');
    expect(story).toMatchObject({ status: 'SENT', attempts: 1, failures: [] });
    expect(story.deliveries).toMatchObject([{ attempts: 1, relay: 'tester', ...toBoth }]);
    expect(row).toMatchObject({ retry_count: 0, last_error: null });
  });

  test('delivered to two handlers after retries', async () => {
    const { story, row } = await answer('afterRetries');
    expect(story).toMatchObject({ status: 'SENT', attempts: 3 });
    expect(story.failures).toMatchObject([
      failed(1, 'ledger', 'the ledger is closed, 1'),
      failed(1, 'mail', 'the mail server is busy'),
      failed(2, 'ledger', 'the ledger is closed, 2'),
    ]);
    expect(story.deliveries).toMatchObject([{ attempts: 3, relay: 'tester', ...toBoth }]);
    expect(row).toMatchObject({ retry_count: 2, last_error: 'the ledger is closed, 2' });
  });

  test('dead', async () => {
    const { story, row } = await answer('dead');
    expect(story).toMatchObject({ status: 'FAILED', attempts: 3, deliveries: [], done: ['mail'] });
    expect(story.failures).toMatchObject([1, 2, 3].map((attempt) => failed(attempt, 'ledger', 'the ledger is lost')));
    expect(story.deadLetter).toMatchObject({ reason: 'exhausted', attempts: 3, error: 'the ledger is lost' });
    expect(story.deadLetter).not.toHaveProperty('discardedAt');
    expect(row).toMatchObject({ retry_count: 3, last_error: 'the ledger is lost', published_at: null });
  });

  test('discarded', async () => {
    const { story, row } = await answer('discarded');
    expect(story).toMatchObject({ status: 'FAILED', attempts: 1, deliveries: [], done: ['ledger'] });
    expect(story.failures).toMatchObject([failed(1, 'mail', 'Reject: no such customer')]);
    expect(story.deadLetter).toMatchObject({ reason: 'rejected', discardedAt: expect.any(Date) });
    expect(row).toMatchObject({ retry_count: 1, last_error: 'Reject: no such customer', published_at: null });
  });

  test('replayed', async () => {
    const { story, row } = await answer('replayed');
    expect(story).toMatchObject({ status: 'SENT', attempts: 1, failures: [] });
    const delivery = { attempts: 1, relay: 'tester', ...toBoth };
    expect(story.deliveries).toMatchObject([delivery, delivery]);
    expect(row).toMatchObject({ retry_count: 0, last_error: null });
  });

  test('still pending', async () => {
    const { story, row } = await answer('pending');
    expect(story).toMatchObject({ status: 'PENDING', attempts: 0, failures: [], deliveries: [] });
    expect(story.availableAt?.getTime()).toBeGreaterThan(after.getTime());
    expect(row).toMatchObject({ retry_count: 0, last_error: null, next_retry_at: story.availableAt });
  });

  test('rolled back: no such event', async () => {
    expect(ids.rolledBack).toEqual(expect.any(String));
    expect(await scene.admin.find(ids.rolledBack)).toBeUndefined();
    expect(await view('rolledBack')).toEqual([]);
  });
});
