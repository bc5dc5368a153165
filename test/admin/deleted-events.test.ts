import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { runHere } from '../cli/fake-terminal.ts';
import { until } from '../support/wait.ts';
import { Scene } from './scene.ts';

describe('an event deleted from outbox_events, with poison: block', () => {
  let scene: Scene;

  beforeEach(async () => {
    scene = await Scene.create();
  });

  afterEach(() => scene.close());

  async function deleteFromLog(id: string): Promise<void> {
    await scene.db.query('delete from postcommit.outbox_events where id = $1', [id]);
  }

  /** A dead letter that holds its key, with one event behind it, and then its row in the log is deleted. */
  async function heldAndDeleted(): Promise<{ seq: string; follower: string }> {
    await scene.relay({ poison: 'block' });
    const [held, follower] = (await scene.emit([{ payload: { does: 'reject' } }, {}])) as [string, string];
    await scene.untilParked(1);
    const seq = await scene.seqOf(held);
    await deleteFromLog(held);
    return { seq, follower };
  }

  async function untilDelivered(ids: string[]): Promise<void> {
    await until(() => scene.delivered.length === ids.length, { what: 'the key continues' });
    expect(scene.delivered).toEqual(ids);
  }

  test('before its delivery becomes a dead letter that does not hold its key', async () => {
    const [deleted, follower] = (await scene.emit([{}, {}])) as [string, string];
    const seq = await scene.seqOf(deleted);
    await deleteFromLog(deleted);
    await scene.relay({ poison: 'block' });
    await untilDelivered([follower]);
    expect((await scene.admin.deadLetters()).deadLetters).toEqual([
      {
        id: null,
        seq,
        type: null,
        aggregate: null,
        createdAt: null,
        at: expect.any(Date),
        reason: 'rejected',
        attempts: 1,
        error: expect.stringContaining('deleted from outbox_events'),
        blocking: false,
        done: [],
      },
    ]);
  });

  test('while it holds its key is listed, and named by its seq', async () => {
    const { seq } = await heldAndDeleted();
    expect((await scene.admin.deadLetters()).deadLetters).toMatchObject([
      { id: null, seq, type: null, blocking: true },
    ]);
    expect((await scene.admin.deadLetters({ type: 'order.created' })).deadLetters).toEqual([]);
    const { code, stdout } = await runHere(['dead', 'list'], { env: { DATABASE_URL: scene.db.url } });
    expect(code).toBe(0);
    expect(stdout).toMatch(new RegExp(`^${seq} +rejected +1 +yes +\\(deleted\\) +- `, 'm'));
  });

  test.each(['its seq', 'all'])('while it holds its key is discarded by %s, and the key continues', async (by) => {
    const { seq, follower } = await heldAndDeleted();
    const target = by === 'all' ? ({ all: true } as const) : { ids: [seq] };
    expect(await scene.admin.discard(target)).toEqual({ count: 1 });
    await untilDelivered([follower]);
    expect((await scene.admin.deadLetters()).deadLetters).toEqual([]);
  });

  test.each(['its seq', 'all'])(
    'while it holds its key is retried by %s: dead again, but the key continues',
    async (by) => {
      const { seq, follower } = await heldAndDeleted();
      const target = by === 'all' ? ({ all: true } as const) : { ids: [seq] };
      expect(await scene.admin.retry(target)).toEqual({ count: 1 });
      await untilDelivered([follower]);
      expect((await scene.admin.deadLetters()).deadLetters).toMatchObject([{ seq, blocking: false }]);
      expect(await scene.admin.counts()).toMatchObject({ failed: 1, blocked: 0 });
    },
  );
});
