import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { OutboxAdmin } from '../../src/admin/admin.ts';
import {
  createOutbox,
  type DeadLetterFilter,
  type DeadLetterTarget,
  fromPg,
  type OutboxDatabase,
} from '../../src/index.ts';
import { until } from '../support/wait.ts';
import { Scene } from './scene.ts';

describe('dead letters', () => {
  let scene: Scene;

  beforeEach(async () => {
    scene = await Scene.create();
  });

  afterEach(async () => {
    await scene.close();
  });

  /** So many events of aggregates of their own that all became dead letters. */
  async function deadLetters(count: number): Promise<string[]> {
    const ids = await scene.emit(
      Array.from({ length: count }, (_, i) => ({
        type: i % 2 === 0 ? 'order.created' : 'order.paid',
        aggregate: ['order', String(i)] as const,
        payload: { does: i % 3 === 0 ? ('reject' as const) : ('fail' as const) },
      })),
    );
    await scene.relay();
    await scene.untilStatus('FAILED', count);
    return ids;
  }

  /** An admin whose every statement is preceded by this. */
  function adminWith(before: (text: string) => Promise<void>): OutboxAdmin {
    const side: OutboxDatabase<unknown>['side'] = {
      async query(text, values) {
        await before(text);
        return scene.db.pool.query(text, values);
      },
    };
    return new OutboxAdmin({ db: side, schema: 'postcommit', notify: true });
  }

  async function idsOf(filter: DeadLetterFilter): Promise<(string | null)[]> {
    const { deadLetters } = await scene.admin.deadLetters(filter);
    return deadLetters.map(({ id }) => id).reverse();
  }

  describe('deadLetters', () => {
    test('lists them by type, aggregate, reason, error and time of death', async () => {
      const ids = await deadLetters(9);
      const { deadLetters: newest } = await scene.admin.deadLetters({ limit: 1 });
      expect(newest).toEqual([
        {
          id: ids[8],
          seq: await scene.seqOf(ids[8] as string),
          type: 'order.created',
          aggregate: { type: 'order', id: '8' },
          createdAt: expect.any(Date),
          at: expect.any(Date),
          reason: 'exhausted',
          attempts: 1,
          error: 'attempt 1 failed as scripted',
          blocking: false,
          done: [],
        },
      ]);
      expect(await idsOf({})).toEqual(ids);
      expect(await idsOf({ type: 'order.paid' })).toEqual(ids.filter((_, i) => i % 2 === 1));
      expect(await idsOf({ aggregate: ['order', 4] })).toEqual([ids[4]]);
      expect(await idsOf({ reason: 'rejected' })).toEqual(ids.filter((_, i) => i % 3 === 0));
      expect(await idsOf({ error: 'failed as' })).toEqual(ids.filter((_, i) => i % 3 !== 0));
      expect(await idsOf({ error: '%' })).toEqual([]);
      expect(await idsOf({ error: '_' })).toEqual([]);
      expect(await idsOf({ from: new Date(Date.now() + 3_600_000) })).toEqual([]);
      expect(await idsOf({ to: new Date(Date.now() + 3_600_000), reason: 'rejected', type: 'order.paid' })).toEqual([
        ids[3],
      ]);
    });

    test('pages through them, also past 2^53', async () => {
      await scene.useHugeSeqs();
      const ids = await deadLetters(7);
      const seen: (string | null)[] = [];
      let after: string | undefined;
      do {
        const page = await scene.admin.deadLetters({ limit: 3, ...(after && { after }) });
        seen.push(...page.deadLetters.map(({ id }) => id));
        after = page.next;
      } while (after);
      expect(seen).toEqual([...ids].reverse());
    });

    test('refuses a cursor of another list, and a filter that cannot be meant', async () => {
      await scene.emit([{}, {}]);
      const { next } = await scene.admin.list({ limit: 1 });
      await expect(scene.admin.deadLetters({ after: next as string })).rejects.toMatchObject({
        code: 'POSTCOMMIT_E_BAD_CURSOR',
      });
      const refused: [unknown, string][] = [
        [{ reason: 'bored' }, 'POSTCOMMIT_E_BAD_FILTER'],
        [{ error: '' }, 'POSTCOMMIT_E_BAD_FILTER'],
        [{ includeDiscarded: 'yes' }, 'POSTCOMMIT_E_BAD_FILTER'],
        [{ status: 'FAILED' }, 'POSTCOMMIT_E_BAD_FILTER'],
        [{ error: 'a\0b' }, 'POSTCOMMIT_E_TEXT_NOT_STORABLE'],
      ];
      for (const [filter, code] of refused) {
        await expect(scene.admin.deadLetters(filter as DeadLetterFilter)).rejects.toMatchObject({ code });
      }
    });
  });

  describe.each(['retry', 'discard'] as const)('%s', (operation) => {
    test('refuses to be meant for everything by mistake', async () => {
      const [id] = await deadLetters(1);
      const empty = [{}, { ids: [] }, { type: undefined }, { includeDiscarded: true }, { all: false }];
      for (const target of empty as DeadLetterTarget[]) {
        await expect(scene.admin[operation](target), JSON.stringify(target)).rejects.toMatchObject({
          code: 'POSTCOMMIT_E_EMPTY_FILTER',
        });
      }
      const malformed: [unknown, string][] = [
        [undefined, 'POSTCOMMIT_E_BAD_FILTER'],
        [{ all: true, type: 'order.created' }, 'POSTCOMMIT_E_BAD_FILTER'],
        [{ ids: [id], type: 'order.created' }, 'POSTCOMMIT_E_BAD_FILTER'],
        [{ type: 'order.created', limit: 1 }, 'POSTCOMMIT_E_BAD_FILTER'],
        [{ ids: id }, 'POSTCOMMIT_E_BAD_FILTER'],
        [{ all: 'yes' }, 'POSTCOMMIT_E_BAD_FILTER'],
        [{ ids: [id, 'nonsense'] }, 'POSTCOMMIT_E_BAD_ID'],
        [{ error: '\0' }, 'POSTCOMMIT_E_TEXT_NOT_STORABLE'],
      ];
      for (const [target, code] of malformed) {
        await expect(scene.admin[operation](target as DeadLetterTarget), JSON.stringify(target)).rejects.toMatchObject({
          code,
        });
      }
      expect(await idsOf({})).toEqual([id]);
    });

    test('takes named ones, and does not count what is none', async () => {
      const ids = await deadLetters(5);
      scene.healed = true;
      const pending = await scene.emitOne({ delayMs: 3_600_000 });
      const named = [
        ids[1],
        await scene.seqOf(ids[3] as string),
        ids[1],
        pending,
        '0198c5a2-7d9e-7cc3-98c4-dc0c0c07398f',
      ];
      expect(await scene.admin[operation]({ ids: named as string[] })).toEqual({ count: 2 });
      expect(await idsOf({})).toEqual([ids[0], ids[2], ids[4]]);
      expect(await scene.admin[operation]({ ids: named as string[] })).toEqual({ count: 0 });
      expect((await scene.admin.find(pending))?.status).toBe('PENDING');
    });

    test('takes those that match', async () => {
      const ids = await deadLetters(6);
      scene.healed = true;
      expect(await scene.admin[operation]({ type: 'order.paid', reason: 'rejected' })).toEqual({ count: 1 });
      expect(await idsOf({})).toEqual(ids.filter((_, i) => i !== 3));
      expect(await scene.admin[operation]({ from: new Date(Date.now() + 3_600_000) })).toEqual({ count: 0 });
      expect(await scene.admin[operation]({ all: true })).toEqual({ count: 5 });
      expect(await idsOf({})).toEqual([]);
    });

    test('takes more than one chunk, with two operators at once, each event once', async () => {
      await scene.relay({ retry: { delaysMs: [] }, poison: 'block' });
      const count = 2_300;
      await scene.emit(
        Array.from({ length: count }, (_, i) => ({
          aggregate: ['order', String(i)] as const,
          payload: { does: 'fail' },
        })),
      );
      await scene.untilStatus('FAILED', count);
      scene.healed = true;
      const results = await Promise.all([
        scene.admin[operation]({ all: true }),
        createOutbox({ db: fromPg(scene.db.pool) }).admin[operation]({ type: 'order.created' }),
      ]);
      expect(results.reduce((sum, result) => sum + result.count, 0)).toBe(count);
      expect(await idsOf({})).toEqual([]);
      if (operation === 'retry') await scene.untilStatus('SENT', count);
      expect(new Set(scene.delivered).size).toBe(scene.delivered.length);
    });
  });

  describe('retry', () => {
    test('delivers again with all attempts ahead, and only to targets that do not have it', async () => {
      const calls: string[] = [];
      let broken = true;
      const relay = await scene.relay({
        retry: { delaysMs: [1] },
        handlers: {
          'order.created': {
            mail: (_event, ctx) => calls.push(`mail ${ctx.attempt}`),
            ledger: (_event, ctx) => {
              calls.push(`ledger ${ctx.attempt}`);
              if (broken) throw new Error('the ledger is closed');
            },
          },
        },
      });
      const id = await scene.emitOne();
      await scene.untilStatus('FAILED', 1);
      broken = false;
      expect(await scene.admin.retry({ ids: [id] })).toEqual({ count: 1 });
      await scene.untilStatus('SENT', 1);
      expect(calls).toEqual(['mail 1', 'ledger 1', 'ledger 2', 'ledger 1']);
      const story = await scene.admin.find(id);
      expect(story).toMatchObject({ status: 'SENT', attempts: 1, failures: [{ attempt: 1 }, { attempt: 2 }] });
      expect(story?.deliveries).toMatchObject([{ attempts: 1, targets: ['mail', 'ledger'] }]);
      expect(story).not.toHaveProperty('deadLetter');
      expect(relay.stats().deadLettered).toBe(1);
    });

    test('delivers what was parked behind a held one after it, in order', async () => {
      await scene.relay({ poison: 'block' });
      const [poison, ...followers] = (await scene.emit([
        { payload: { does: 'fail' } },
        ...Array.from({ length: 20 }, () => ({})),
      ])) as [string, ...string[]];
      const elsewhere = await scene.emitOne({ aggregate: ['order', '2'] });
      await scene.untilParked(20);
      await scene.untilStatus('SENT', 1);
      expect(scene.delivered).toEqual([elsewhere]);
      expect(await scene.admin.find(poison)).toMatchObject({ status: 'FAILED', deadLetter: { blocking: true } });
      expect(await scene.admin.find(followers[19] as string)).toMatchObject({
        status: 'PENDING',
        waitingBehind: { id: poison },
      });

      scene.healed = true;
      expect(await scene.admin.retry({ ids: [poison] })).toEqual({ count: 1 });
      await scene.untilStatus('SENT', 22);
      expect(scene.delivered).toEqual([elsewhere, poison, ...followers]);
      expect(await scene.admin.find(poison)).toMatchObject({ attempts: 1, failures: [{ attempt: 1 }], done: [] });
      expect((await scene.admin.counts()).blocked).toBe(0);
    });

    test('wakes a line that is longer than a chunk, while more is emitted', async () => {
      const relay = await scene.relay({ poison: 'block' });
      const ids = await scene.emit([{ payload: { does: 'fail' } }, ...Array.from({ length: 2_500 }, () => ({}))]);
      await scene.untilParked(2_500);
      scene.healed = true;
      const retried = scene.admin.retry({ reason: 'exhausted' });
      for (let i = 0; i < 10; i++) ids.push(await scene.emitOne());
      expect(await retried).toEqual({ count: 1 });
      await scene.untilStatus('SENT', ids.length);
      expect(scene.delivered).toEqual(ids);
      expect(relay.stats()).toMatchObject({ inFlight: 0, waiting: 0 });
    });

    test('ends although every event dies again at once', async () => {
      const ids = await deadLetters(4);
      expect(await scene.admin.retry({ all: true })).toEqual({ count: 4 });
      await scene.untilStatus('FAILED', 4);
      await until(async () => (await scene.admin.find(ids[0] as string))?.failures.length === 2, {
        what: 'it failed again',
      });
    });

    test('does not take what died after it began', async () => {
      const ids = await deadLetters(3);
      const [first, ...later] = ids as [string, ...string[]];
      const admin = adminWith(async (text) => {
        // Right before the dead letters are chosen, and after the operation has looked at the clock.
        if (!text.includes('with chosen')) return;
        const sql = 'update postcommit.outbox_dead_letters set dead_at = clock_timestamp() where seq > $1';
        await scene.db.query(sql, [await scene.seqOf(first)]);
      });
      scene.healed = true;
      expect(await admin.retry({ all: true })).toEqual({ count: 1 });
      expect(await idsOf({})).toEqual(later);
    });

    test('wakes what waits behind those it retried before it failed', async () => {
      await scene.relay({ poison: 'block' });
      const keys = 1_001;
      await scene.emit(
        Array.from({ length: keys }, (_, i) => ({
          aggregate: ['order', String(i)] as const,
          payload: { does: 'fail' as const },
        })),
      );
      await scene.emit(Array.from({ length: keys }, (_, i) => ({ aggregate: ['order', String(i)] as const })));
      await scene.untilParked(keys);
      let chunks = 0;
      const admin = adminWith(async (text) => {
        if (text.includes('with chosen') && ++chunks === 2) throw new Error('the network is gone');
      });
      scene.healed = true;
      await expect(admin.retry({ all: true })).rejects.toThrow('the network is gone');
      await scene.untilStatus('SENT', 2_000);
      expect(await scene.admin.counts()).toMatchObject({ failed: 1, blocked: 1, waiting: 1 });
      expect(await scene.admin.retry({ all: true })).toEqual({ count: 1 });
      await scene.untilStatus('SENT', 2_002);
    });

    test('keeps the order of one aggregate, whatever the order of the ids', async () => {
      await scene.relay();
      const ids = await scene.emit(Array.from({ length: 10 }, () => ({ payload: { does: 'fail' } })));
      await scene.untilStatus('FAILED', 10);
      scene.healed = true;
      await scene.admin.retry({ ids: [...ids].reverse() });
      await scene.untilStatus('SENT', 10);
      expect(scene.delivered).toEqual(ids);
    });

    test('takes a discarded one only when it is named or asked for', async () => {
      const ids = await deadLetters(3);
      scene.healed = true;
      await scene.admin.discard({ all: true });
      expect(await scene.admin.retry({ all: true })).toEqual({ count: 0 });
      expect(await scene.admin.retry({ ids: [ids[0] as string] })).toEqual({ count: 1 });
      expect(await scene.admin.retry({ aggregate: ['order'], includeDiscarded: true })).toEqual({ count: 2 });
      await scene.untilStatus('SENT', 3);
    });
  });

  describe('discard', () => {
    test('leaves the event FAILED, with its story, and out of the list', async () => {
      const [id] = (await deadLetters(1)) as [string];
      expect(await scene.admin.discard({ ids: [id] })).toEqual({ count: 1 });
      expect(await idsOf({})).toEqual([]);
      expect(await idsOf({ includeDiscarded: true })).toEqual([id]);
      expect((await scene.admin.list({ status: 'FAILED' })).events.map((event) => event.id)).toEqual([id]);
      const story = await scene.admin.find(id);
      expect(story).toMatchObject({
        status: 'FAILED',
        failures: [{ attempt: 1, error: 'Reject: rejected as scripted' }],
        deadLetter: { reason: 'rejected', blocking: false, discardedAt: expect.any(Date) },
      });
      expect(await scene.admin.counts()).toMatchObject({ failed: 0 });
      expect(scene.delivered).toEqual([]);
    });

    test('lets the key that it held go on without it', async () => {
      await scene.relay({ poison: 'block' });
      const [poison, ...followers] = (await scene.emit([
        { payload: { does: 'reject' } },
        ...Array.from({ length: 5 }, () => ({})),
      ])) as [string, ...string[]];
      await scene.untilParked(5);
      expect(await scene.admin.discard({ error: 'as scripted' })).toEqual({ count: 1 });
      await scene.untilStatus('SENT', 5);
      expect(scene.delivered).toEqual(followers);
      expect((await scene.admin.find(poison))?.status).toBe('FAILED');
    });
  });
});
