import { afterEach, beforeEach, expect, test } from 'vitest';
import { OutboxAdmin } from '../../src/admin/admin.ts';
import { pruneAudit } from '../../src/outbox/maintaining/prune-audit.ts';
import { Scene } from './scene.ts';

let scene: Scene;

beforeEach(async () => {
  scene = await Scene.create();
});
afterEach(() => scene.close());

async function deadLetters(count: number): Promise<string[]> {
  const ids = await scene.emit(
    Array.from({ length: count }, (_, i) => ({
      aggregate: ['order', String(i)] as const,
      payload: { does: 'reject' },
    })),
  );
  await scene.relay();
  await scene.untilStatus('FAILED', count);
  return ids;
}

test('every operation leaves a row with who, what, why and how many', async () => {
  const ids = await deadLetters(3);
  const ann = scene.admin.as({ by: 'ann', reason: 'broken test data' });
  await ann.discard({ ids: ids.slice(0, 1) });
  scene.healed = true;
  await ann.retry({ reason: 'rejected' });
  await scene.admin.pauseQueue('default', { reason: 'upgrade' });
  await ann.resumeQueue('default');
  await ann.prune({ olderThanMs: 0, dryRun: true });
  const { operations } = await scene.admin.audit();
  const [role] = await scene.db.query<{ name: string }>('select session_user::text as name');
  expect(operations).toMatchObject([
    { action: 'resumeQueue', by: 'ann', databaseRole: role?.name, target: { queue: 'default' } },
    { action: 'pauseQueue', by: role?.name, databaseRole: role?.name, reason: 'upgrade', target: { queue: 'default' } },
    { action: 'retry', by: 'ann', reason: 'broken test data', target: { reason: 'rejected' }, changed: 2 },
    { action: 'discard', by: 'ann', reason: 'broken test data', target: { ids: ids.slice(0, 1) }, changed: 1 },
  ]);
  expect(operations.every(({ finishedAt, error }) => finishedAt instanceof Date && error === undefined)).toBe(true);
});

test('an operation that fails leaves its error, one with invalid arguments leaves no row', async () => {
  await expect(scene.admin.pauseDestination('nowhere')).rejects.toMatchObject({
    code: 'POSTCOMMIT_E_NO_SUCH_DESTINATION',
  });
  await expect(scene.admin.retry({})).rejects.toMatchObject({ code: 'POSTCOMMIT_E_EMPTY_FILTER' });
  const { operations } = await scene.admin.audit();
  expect(operations).toMatchObject([{ action: 'pauseDestination', target: { destination: 'nowhere' } }]);
  expect(operations[0]?.error).toContain('POSTCOMMIT_E_NO_SUCH_DESTINATION');
});

test('pages continue where the previous one ended', async () => {
  for (const by of ['a', 'b', 'c']) await scene.admin.as({ by }).requeueUnqueued();
  const first = await scene.admin.audit({ limit: 2 });
  const second = await scene.admin.audit({ limit: 2, after: first.next as string });
  expect([first, second].map(({ operations }) => operations.map(({ by }) => by))).toEqual([['c', 'b'], ['a']]);
  expect(second.next).toBeUndefined();
});

test('rows are kept for at least 90 days, also where events are not', async () => {
  for (const by of ['old', 'new']) await scene.admin.as({ by }).requeueUnqueued();
  await scene.db.query(
    `update postcommit.outbox_audit set started_at = now() - interval '91 days' where operator = 'old'`,
  );
  const prune = (keepMs: number) => pruneAudit(scene.db.pool, 'postcommit', { keepMs, rowsMax: 100 });
  expect(await prune(Number.POSITIVE_INFINITY)).toBe(0);
  expect(await prune(365 * 86_400_000)).toBe(0);
  expect(await prune(0)).toBe(1);
  expect((await scene.admin.audit()).operations.map(({ by }) => by)).toEqual(['new']);
});

test('an operation that succeeded is reported as a success, even if the end of its row cannot be written', async () => {
  const db = {
    query: (text: string, values?: unknown[]) =>
      text.includes('finish_operation')
        ? Promise.reject(new Error('connection lost'))
        : scene.db.pool.query(text, values),
  };
  const admin = new OutboxAdmin({ db: db as never, schema: 'postcommit', notify: false });
  expect(await admin.requeueUnqueued()).toMatchObject({ count: 0 });
  const [operation] = (await scene.admin.audit()).operations;
  expect(operation).toMatchObject({ action: 'requeueUnqueued' });
  expect([operation?.finishedAt, operation?.error]).toEqual([undefined, undefined]);
});

test('a target that is too long for a row is not stored as if all events were meant', async () => {
  await scene.admin.retry({ error: 'x'.repeat(4_100) }).catch(() => {});
  const { operations } = await scene.admin.audit();
  expect(operations.filter(({ target }) => JSON.stringify(target) === '{}')).toEqual([]);
});
