import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { OutboxAdmin } from '../../src/admin/admin.ts';
import type { OutboxDatabase, ReplayTarget } from '../../src/index.ts';
import { until } from '../support/wait.ts';
import { Scene } from './scene.ts';

describe('admin.replay', () => {
  let scene: Scene;

  beforeEach(async () => {
    scene = await Scene.create();
  });

  afterEach(async () => {
    await scene.close();
  });

  async function delivered(count: number): Promise<string[]> {
    const ids = await scene.emit(
      Array.from({ length: count }, (_, i) => ({
        type: i % 4 === 3 ? 'order.paid' : 'order.created',
        aggregate: ['order', String(i % 3)] as const,
      })),
    );
    await scene.relay();
    await scene.untilStatus('SENT', count);
    scene.delivered.length = 0;
    return ids;
  }

  async function untilDelivered(count: number): Promise<void> {
    await until(() => scene.delivered.length === count, { timeoutMs: 20_000, what: `${count} deliveries` });
  }

  /** Of each aggregate, the ids in the order of delivery. */
  function lines(ids: readonly string[], delivered: readonly string[]): string[][] {
    return [0, 1, 2].map((aggregate) => delivered.filter((id) => ids.indexOf(id) % 3 === aggregate));
  }

  test('delivers the same ids again, in order for each aggregate', async () => {
    await scene.useHugeSeqs();
    const ids = await delivered(60);
    expect(await scene.admin.replay({ all: true })).toEqual({ count: 60 });
    await untilDelivered(60);
    expect(lines(ids, scene.delivered)).toEqual(lines(ids, ids));
    await scene.untilStatus('SENT', 60);
    const story = await scene.admin.find(ids[0] as string);
    expect(story?.deliveries).toMatchObject([{ attempts: 1 }, { attempts: 1 }]);
    expect(await scene.db.query('select count(*)::integer as n from postcommit.outbox_events')).toEqual([{ n: 60 }]);
  });

  test('takes named ones, in their own order, and those that match', async () => {
    const ids = await delivered(24);
    const named = [9, 0, 6, 3].map((i) => ids[i] as string);
    expect(await scene.admin.replay({ ids: [...named, '0198c5a2-7d9e-7cc3-98c4-dc0c0c07398f'] })).toEqual({ count: 4 });
    await untilDelivered(4);
    expect(scene.delivered).toEqual([0, 3, 6, 9].map((i) => ids[i]));

    await scene.untilStatus('SENT', 24);
    scene.delivered.length = 0;
    expect(await scene.admin.replay({ type: 'order.paid', aggregate: ['order', 0] })).toEqual({ count: 2 });
    await untilDelivered(2);
    expect(scene.delivered).toEqual([ids[3], ids[15]]);

    const [row] = await scene.db.query('select max(created_at) as last from postcommit.outbox_events');
    expect(await scene.admin.replay({ from: new Date(row.last.getTime() + 1) })).toEqual({ count: 0 });
    await scene.untilStatus('SENT', 24);
    expect(await scene.admin.replay({ to: new Date(row.last.getTime() + 1) })).toEqual({ count: 24 });
  });

  test('leaves alone what is in the queue or dead', async () => {
    const [sent] = (await delivered(1)) as [string];
    const [dead, pending] = await scene.emit([
      { aggregate: ['order', '8'], payload: { does: 'reject' } },
      { aggregate: ['order', '9'], delayMs: 3_600_000 },
    ]);
    await scene.untilStatus('FAILED', 1);
    expect(await scene.admin.replay({ ids: [dead as string, pending as string] })).toEqual({ count: 0 });
    expect(await scene.admin.replay({ all: true })).toEqual({ count: 1 });
    await untilDelivered(1);
    expect(scene.delivered).toEqual([sent]);
    expect((await scene.admin.find(pending as string))?.status).toBe('PENDING');
  });

  test('takes each event once, although deliveries go on while chunks are added', async () => {
    const ids = await delivered(2_500);
    expect(await scene.admin.replay({ aggregate: ['order'] })).toEqual({ count: 2_500 });
    await untilDelivered(2_500);
    expect(lines(ids, scene.delivered)).toEqual(lines(ids, ids));
    await scene.untilStatus('SENT', 2_500);
    expect(scene.delivered.length).toBe(2_500);
  });

  test('does not take what was emitted after it began', async () => {
    await delivered(3);
    const late: string[] = [];
    const side: OutboxDatabase<unknown>['side'] = {
      async query(text, values) {
        if (text.includes('with chosen') && late.length === 0) {
          late.push(await scene.emitOne());
          await scene.untilStatus('SENT', 4);
        }
        return scene.db.pool.query(text, values);
      },
    };
    const admin = new OutboxAdmin({ db: side, schema: 'postcommit', notify: true });
    expect(await admin.replay({ all: true })).toEqual({ count: 3 });
    expect(late).toHaveLength(1);
  });

  test('refuses an empty target and conditions it does not know', async () => {
    await delivered(1);
    const refused: [unknown, string][] = [
      [{}, 'POSTCOMMIT_E_EMPTY_FILTER'],
      [{ ids: [] }, 'POSTCOMMIT_E_EMPTY_FILTER'],
      [{ reason: 'rejected' }, 'POSTCOMMIT_E_BAD_FILTER'],
      [{ all: true, from: new Date() }, 'POSTCOMMIT_E_BAD_FILTER'],
      [{ ids: ['x'] }, 'POSTCOMMIT_E_BAD_ID'],
      [{ type: '\0' }, 'POSTCOMMIT_E_TEXT_NOT_STORABLE'],
    ];
    for (const [target, code] of refused) {
      await expect(scene.admin.replay(target as ReplayTarget), JSON.stringify(target)).rejects.toMatchObject({ code });
    }
    expect(scene.delivered).toEqual([]);
  });
});
