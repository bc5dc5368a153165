import { afterEach, beforeEach, expect, test } from 'vitest';
import type { DeliveredEvent } from '../../src/index.ts';
import { Scene } from './scene.ts';

let scene: Scene;

beforeEach(async () => {
  scene = await Scene.create();
});
afterEach(() => scene.close());

/** Delivers amounts, rejects negative ones, and keeps what it got. */
async function relayOfAmounts(poison: 'skip' | 'block', got: unknown[]): Promise<void> {
  const work = async (event: DeliveredEvent<{ amount?: number }>) => {
    if ((event.payload.amount ?? 0) < 0) throw new Error(`amount ${event.payload.amount} is negative`);
    got.push(event.payload.amount);
  };
  await scene.relay({ poison, handlers: { 'order.created': { work } } });
}

const emitAmounts = (amounts: number[]) => scene.emit(amounts.map((amount) => ({ payload: { amount } as object })));

test('the relay delivers the new payload in the place of the old one, and the old one stays readable', async () => {
  const got: unknown[] = [];
  const [, id = ''] = await emitAmounts([1, -2, 3]);
  await relayOfAmounts('block', got);
  await scene.untilStatus('FAILED', 1);
  await scene.untilParked(1);
  expect(got).toEqual([1]);

  await scene.admin.as({ by: 'ann', reason: 'wrong sign' }).editAndRetry(id, { amount: 2 });
  await scene.untilStatus('SENT', 3);
  expect(got).toEqual([1, 2, 3]);
  const event = await scene.admin.find(id);
  expect(event).toMatchObject({
    status: 'SENT',
    payload: { amount: 2 },
    edits: [{ by: 'ann', reason: 'wrong sign', replacedJson: '{"amount": -2}' }],
  });
  const [row] = await scene.db.query('select payload from postcommit.outbox_events where id = $1', [id]);
  expect(row.payload).toEqual({ amount: -2 });
  const { operations } = await scene.admin.audit();
  expect(operations).toMatchObject([{ action: 'editAndRetry', by: 'ann', target: { ids: [id] }, changed: 1 }]);
});

test('an edit can be edited again, and a large payload too', async () => {
  const got: unknown[] = [];
  const [id = ''] = await emitAmounts([-1]);
  await relayOfAmounts('skip', got);
  await scene.untilStatus('FAILED', 1);
  await scene.admin.editAndRetry(id, { amount: -5, note: 'x'.repeat(100_000) });
  await scene.untilStatus('FAILED', 1);
  await scene.admin.editAndRetry(id, { amount: 5 });
  await scene.untilStatus('SENT', 1);
  expect(got).toEqual([5]);
  const edits = (await scene.admin.find(id))?.edits ?? [];
  expect(edits.map(({ replacedJson }) => replacedJson.slice(0, 14))).toEqual(['{"amount": -1}', expect.any(String)]);
});

test('the last edit counts, whatever the clock of the server says', async () => {
  const got: unknown[] = [];
  const [id = ''] = await emitAmounts([-1]);
  await relayOfAmounts('skip', got);
  await scene.untilStatus('FAILED', 1);
  await scene.admin.editAndRetry(id, { amount: -2 });
  await scene.untilStatus('FAILED', 1);
  await scene.db.query(`update postcommit.outbox_edits set edited_at = now() + interval '1 hour'`);
  await scene.admin.editAndRetry(id, { amount: 3 });
  await scene.untilStatus('SENT', 1);
  expect(got).toEqual([3]);
  expect((await scene.admin.find(id))?.payload).toEqual({ amount: 3 });
});

test('of two operators who edit the same dead letter, the second learns that it is none any more', async () => {
  const [id = ''] = await emitAmounts([-1]);
  await relayOfAmounts('skip', []);
  await scene.untilStatus('FAILED', 1);
  const results = await Promise.allSettled([2, 3].map((amount) => scene.admin.editAndRetry(id, { amount })));
  expect(results.map(({ status }) => status).sort()).toEqual(['fulfilled', 'rejected']);
  expect(results.find(({ status }) => status === 'rejected')).toMatchObject({
    reason: { code: 'POSTCOMMIT_E_NOT_A_DEAD_LETTER' },
  });
  await scene.untilStatus('SENT', 1);
  expect((await scene.admin.find(id))?.edits).toHaveLength(1);
});

test('a broker that deduplicates does not take the new payload for the old one', async () => {
  const [id = ''] = await emitAmounts([-1]);
  await relayOfAmounts('block', []);
  await scene.untilStatus('FAILED', 1);
  const replayId = async (table: string) =>
    (await scene.db.query(`select replay_id from postcommit.${table}`))[0]?.replay_id;
  expect(await replayId('outbox_dead_letters')).toBeNull();
  await scene.admin.pauseQueue('default');
  await scene.admin.editAndRetry(id, { amount: 1 });
  expect(await replayId('outbox_queue')).toEqual(expect.any(String));
});

test('what is no JSON, or cannot be stored, is refused', async () => {
  const [id = ''] = await emitAmounts([1]);
  const refusal = (payload: unknown) => scene.admin.editAndRetry(id, payload).catch((error) => error.code);
  expect(await refusal(undefined)).toBe('POSTCOMMIT_E_PAYLOAD_NOT_JSON');
  expect(await refusal({ text: 'a\0b' })).toBe('POSTCOMMIT_E_TEXT_NOT_STORABLE');
  expect(await refusal({ text: '\ud800' })).toBe('POSTCOMMIT_E_TEXT_NOT_STORABLE');
  expect(await refusal({ text: 'a backslash: \\u0000' })).toBe('POSTCOMMIT_E_NOT_A_DEAD_LETTER');
  expect(await refusal({ amount: 1 })).toBe('POSTCOMMIT_E_NOT_A_DEAD_LETTER');
});

test('retention removes the edits with the event', async () => {
  const [id = ''] = await emitAmounts([-1]);
  await relayOfAmounts('skip', []);
  await scene.untilStatus('FAILED', 1);
  await scene.admin.editAndRetry(id, { amount: 1 });
  await scene.untilStatus('SENT', 1);
  await scene.admin.prune({ olderThanMs: 0 });
  expect(await scene.db.query('select from postcommit.outbox_edits')).toEqual([]);
});

test('an edited event that was lost from the queue is requeued with its edit', async () => {
  const got: unknown[] = [];
  const [id = ''] = await emitAmounts([-1]);
  await relayOfAmounts('skip', got);
  await scene.untilStatus('FAILED', 1);
  await scene.admin.pauseQueue('default');
  await scene.admin.editAndRetry(id, { amount: 1 });
  await scene.db.query('delete from postcommit.outbox_queue');
  await scene.admin.requeueUnqueued();
  await scene.admin.resumeQueue('default');
  await scene.untilStatus('SENT', 1);
  expect(got).toEqual([1]);
});
