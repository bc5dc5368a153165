import fc from 'fast-check';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import type { EventStatus, ListFilter, Relay } from '../../src/index.ts';
import { seededRandom } from '../support/random.ts';
import { until } from '../support/wait.ts';
import { Scene, type SceneEvent } from './scene.ts';

async function allPages(scene: Scene, filter: ListFilter, meanwhile?: () => Promise<unknown>) {
  const pages: string[][] = [];
  let after: string | undefined;
  do {
    const page = await scene.admin.list({ ...filter, ...(after && { after }) });
    pages.push(page.events.map(({ id }) => id));
    after = page.next;
    await meanwhile?.();
  } while (after !== undefined);
  return pages;
}

describe('admin.list', () => {
  describe('of events that wait', () => {
    let scene: Scene;
    let ids: string[];

    beforeAll(async () => {
      scene = await Scene.create();
      await scene.useHugeSeqs();
      ids = await scene.emit(
        Array.from({ length: 25 }, (_, i) => ({
          type: i % 5 === 0 ? 'order.paid' : 'order.created',
          aggregate: [i % 2 === 0 ? 'order' : 'invoice', String(i % 3)] as const,
        })),
      );
    });

    afterAll(() => scene.close());

    test('pages from the newest to the oldest, without gap or double while new ones arrive', async () => {
      const pages = await allPages(scene, { limit: 7 }, () => scene.emit([{ type: 'invoice.sent' }]));
      expect(pages.map((page) => page.length)).toEqual([7, 7, 7, 4]);
      expect(pages.flat()).toEqual([...ids].reverse());
    });

    test('pages from the oldest to the newest, and what arrives comes at the end', async () => {
      const late: string[] = [];
      const pages = await allPages(scene, { limit: 10, order: 'oldest', type: 'order.created' }, async () => {
        if (late.length === 0) late.push(await scene.emitOne());
      });
      expect(pages.flat()).toEqual([...ids.filter((_, i) => i % 5 !== 0), ...late]);
    });

    test('ends without an empty page when the last one is full', async () => {
      const pages = await allPages(scene, { limit: 1, aggregate: ['order', '0'], type: 'order.paid' });
      expect(pages).toEqual([[ids[0]]]);
    });

    test('shows what each event is and its state', async () => {
      const { events, next } = await scene.admin.list({ order: 'oldest', limit: 1 });
      expect(events).toEqual([
        {
          id: ids[0],
          seq: '9007199254741002',
          type: 'order.paid',
          aggregate: { type: 'order', id: '0' },
          status: 'PENDING',
          attempts: 0,
          createdAt: expect.any(Date),
        },
      ]);
      expect(next).toEqual(expect.any(String));
    });

    test('filters by type, aggregate, and time of emission', async () => {
      const idsOf = async (filter: ListFilter) =>
        (await scene.admin.list({ order: 'oldest', ...filter })).events.map(({ id }) => id);
      expect(await idsOf({ type: 'order.paid' })).toEqual(ids.filter((_, i) => i % 5 === 0));
      expect(await idsOf({ aggregate: ['invoice'] })).toEqual(ids.filter((_, i) => i % 2 === 1));
      expect(await idsOf({ aggregate: ['invoice', 2] })).toEqual(ids.filter((_, i) => i % 2 === 1 && i % 3 === 2));
      expect(await idsOf({ type: 'no.such' })).toEqual([]);

      const rows = await scene.db.query<{ id: string; created_at: Date }>(
        'select id, created_at from postcommit.outbox_events order by seq',
      );
      const from = rows[5]?.created_at as Date;
      const to = new Date(from.getTime() + 1);
      const expected = rows.filter(({ created_at }) => created_at >= from && created_at < to).map(({ id }) => id);
      expect(expected.length).toBeGreaterThan(0);
      expect(await idsOf({ from, to, limit: 1_000 })).toEqual(expected);
      expect(await idsOf({ from: new Date('2001-01-01'), to: new Date('2002-01-01') })).toEqual([]);
      expect(await idsOf({ from: new Date('9999-12-31') })).toEqual([]);
      const [always, never] = [new Date('0001-01-01'), new Date('9999-12-31T23:59:59.999Z')];
      expect((await idsOf({ from: always, to: never, limit: 1_000 })).length).toBe(rows.length);
    });

    test('finds a time by its place in a log of many hours', async () => {
      const other = await Scene.create();
      await other.db.query(
        `insert into postcommit.outbox_events (aggregate_type, aggregate_id, event_type, payload, created_at)
         select 'order', '1', 'order.created', '{}', timestamptz '2026-01-01' + i * interval '10 minutes'
           from generate_series(0, 999) i`,
      );
      // Gaps, as rolled back transactions and dropped partitions leave them.
      await other.db.query('delete from postcommit.outbox_events where seq % 7 = 3 or seq between 400 and 500');
      const rows = await other.db.query<{ id: string; created_at: Date }>(
        'select id, created_at from postcommit.outbox_events order by seq',
      );
      const start = Date.parse('2026-01-01T00:00:00Z');
      for (const [fromHour, toHour] of [
        [0, 1],
        [50, 70],
        [66, 84],
        [100, 101],
        [-5, 2],
        [160, 300],
        [80, 80],
      ] as const) {
        const [from, to] = [new Date(start + fromHour * 3_600_000), new Date(start + toHour * 3_600_000)];
        const { events } = await other.admin.list({ from, to, order: 'oldest', limit: 1_000 });
        const expected = rows.filter(({ created_at }) => created_at >= from && created_at < to);
        expect(
          events.map(({ id }) => id),
          `${fromHour} to ${toHour}`,
        ).toEqual(expected.map(({ id }) => id));
      }
      await other.close();
    });

    test('refuses a cursor that is not one of this list', async () => {
      const { next } = await scene.admin.list({ limit: 1 });
      const { next: ofOther } = await scene.admin.list({ limit: 1, order: 'oldest' });
      for (const after of ['', 'abc', '7', `${next}=`, ` ${next}`, ofOther, 'a'.repeat(1_000), 7, null]) {
        await expect(scene.admin.list({ after: after as string }), String(after)).rejects.toMatchObject({
          code: 'POSTCOMMIT_E_BAD_CURSOR',
        });
      }
    });

    test('refuses a filter that cannot be meant', async () => {
      const refused: [unknown, string?][] = [
        [{ status: 'DONE' }],
        [{ status: 'sent' }],
        [{ order: 'random' }],
        [{ limit: 0 }],
        [{ limit: 1_001 }],
        [{ limit: 1.5 }],
        [{ limit: '10' }],
        [{ aggregate: 'order' }],
        [{ aggregate: [] }],
        [{ aggregate: ['order', '1', '2'] }],
        [{ aggregate: ['', '1'] }],
        [{ aggregate: [undefined, '1'] }],
        [{ from: '2026-01-01' }],
        [{ to: new Date('nonsense') }],
        [{ from: new Date('0000-12-31') }],
        [{ to: new Date('+010000-01-01') }],
        [{ from: new Date('2026-01-02'), to: new Date('2026-01-01') }],
        [{ type: '' }],
        [{ type: 7 }],
        [{ tpye: 'order.created' }],
        [null],
        [[]],
        [{ type: 'order\0created' }, 'POSTCOMMIT_E_TEXT_NOT_STORABLE'],
        [{ aggregate: ['order', '4\0'] }, 'POSTCOMMIT_E_TEXT_NOT_STORABLE'],
        [{ type: '\ud800' }, 'POSTCOMMIT_E_TEXT_NOT_STORABLE'],
      ];
      for (const [filter, code = 'POSTCOMMIT_E_BAD_FILTER'] of refused) {
        await expect(scene.admin.list(filter as ListFilter), JSON.stringify(filter)).rejects.toMatchObject({ code });
      }
    });
  });

  test('visits every matching event exactly once, whatever the filter and the page size', {
    timeout: 120_000,
  }, async () => {
    const random = seededRandom();
    const scene = await Scene.create();
    await scene.useHugeSeqs();
    const does = ['ok', 'ok', 'ok', 'fail', 'reject', 'hang'] as const;
    const events = Array.from(
      { length: 150 },
      (): SceneEvent => ({
        type: random.pick(['order.created', 'order.paid', 'invoice.sent']),
        aggregate: [random.pick(['order', 'invoice']), String(random.integer(1, 30))],
        payload: { does: random.pick(does) },
        ...(random.chance(0.1) ? { delayMs: 3_600_000 } : {}),
        ...(random.chance(0.2) ? { key: null } : {}),
      }),
    );
    await scene.emit(events);
    // Those that fail wait for an hour, those that are rejected hold their key, and those that hang stay in its hands.
    const relay = await scene.relay({ retry: { delaysMs: [3_600_000] }, poison: 'block' });
    await until(() => settledDown(scene, relay), { timeoutMs: 20_000, what: 'the relay has nothing more to do' });
    interface Row {
      id: string;
      status: EventStatus;
      event_type: string;
      aggregate_type: string;
      aggregate_id: string;
    }
    const rows = await scene.db.query<Row>('select * from postcommit.outbox_status order by seq');
    const statuses = ['PENDING', 'PROCESSING', 'SENT', 'FAILED'] as const;
    for (const status of statuses)
      expect(
        rows.some((row) => row.status === status),
        status,
      ).toBe(true);

    const filters = fc.record(
      {
        status: fc.constantFrom<EventStatus>(...statuses),
        type: fc.constantFrom('order.created', 'order.paid', 'invoice.sent', 'no.such'),
        aggregate: fc.oneof(
          fc.tuple(fc.constantFrom('order', 'invoice')),
          fc.tuple(fc.constantFrom('order', 'invoice'), fc.integer({ min: 1, max: 31 }).map(String)),
        ),
        order: fc.constantFrom('newest' as const, 'oldest' as const),
        limit: fc.integer({ min: 1, max: 60 }),
      },
      { requiredKeys: [] },
    );
    await fc.assert(
      fc.asyncProperty(filters, async (filter) => {
        const matching = rows.filter(
          (row) =>
            (filter.status === undefined || row.status === filter.status) &&
            (filter.type === undefined || row.event_type === filter.type) &&
            (filter.aggregate === undefined || row.aggregate_type === filter.aggregate[0]) &&
            (filter.aggregate?.[1] === undefined || row.aggregate_id === filter.aggregate[1]),
        );
        const expected = matching.map(({ id }) => id);
        if (filter.order !== 'oldest') expected.reverse();
        const pages = await allPages(scene, filter);
        expect(pages.flat()).toEqual(expected);
        const full = pages.slice(0, -1).every((page) => page.length === (filter.limit ?? 50));
        expect(full, 'every page but the last is full').toBe(true);
      }),
      { seed: random.seed, numRuns: 100 },
    );
    await scene.close();
  });
});

/** Whether nothing is left to begin, all that is in flight hangs, and every result is written down. */
async function settledDown(scene: Scene, relay: Relay): Promise<boolean> {
  const [row] = await scene.db.query<{ ready: number; claimed: number }>(
    `select count(*) filter (where claimed_by is null and (available_at is null or available_at <= now()))::integer as ready,
            count(claimed_by)::integer as claimed from postcommit.outbox_queue`,
  );
  const { inFlight, waiting } = relay.stats();
  return row?.ready === 0 && inFlight === scene.hanging && row.claimed === inFlight + waiting;
}
