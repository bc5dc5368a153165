import fc from 'fast-check';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import type { EventStatus } from '../../src/index.ts';
import { circuitProven, closeCircuit } from '../../src/outbox/delivering/close-circuit.ts';
import { openCircuit } from '../../src/outbox/delivering/open-circuit.ts';
import { unshelve } from '../../src/outbox/delivering/unshelve.ts';
import { count } from '../../src/outbox/operating/count.ts';
import { seededRandom } from '../support/random.ts';
import { Scene } from './scene.ts';

/** Events that wait for a destination, in every query about events. */
describe('a shelved event', () => {
  let scene: Scene;

  beforeEach(async () => {
    scene = await Scene.create();
  });

  afterEach(() => scene.close());

  /** A record of their delivery, and nothing left to do. */
  async function deliver(ids: readonly string[]): Promise<void> {
    await scene.db.query(
      `with gone as (
         delete from postcommit.outbox_queue q using postcommit.outbox_events e
          where e.seq = q.seq and e.id = any ($1::uuid[]) returning q.seq)
       insert into postcommit.outbox_deliveries (relay, attempts, targets, seqs)
       select 1, 1, '{work}', range_agg(int8range(seq, seq, '[]')) from gone`,
      [ids],
    );
  }

  test('shows what it waits for, since when, and which targets have it', async () => {
    const [id, next] = (await scene.emit([{}, {}])) as [string, string];
    await scene.shelve([id], ['webhooks', 'kafka'], ['nats', 'audit']);
    const story = await scene.admin.find(id);
    expect(story).toMatchObject({
      status: 'PENDING',
      attempts: 0,
      waitingFor: ['kafka', 'webhooks'],
      waitingSince: expect.any(Date),
      done: ['nats', 'audit'],
      failures: [],
      deliveries: [],
    });
    expect(story?.waitingSince?.getTime()).toBeGreaterThanOrEqual(story?.createdAt.getTime() ?? Infinity);
    for (const absent of ['availableAt', 'holder', 'waitingBehind', 'deadLetter']) {
      expect(story).not.toHaveProperty(absent);
    }
    // It does not hold its aggregate up: the next one goes to other destinations.
    expect(await scene.admin.find(next)).toMatchObject({ waitingFor: [] });
    expect(await scene.admin.find(next)).not.toHaveProperty('waitingBehind');
    expect(await scene.admin.find(next)).not.toHaveProperty('waitingSince');
  });

  test('returns to the queue with its attempts once its destination is up again', async () => {
    const id = await scene.emitOne();
    await scene.db.query('update postcommit.outbox_queue set attempts = 3');
    await scene.shelve([id], ['kafka', 'webhooks'], ['nats']);
    expect(await scene.admin.find(id)).toMatchObject({ attempts: 3 });
    expect((await scene.admin.list()).events).toMatchObject([{ id, attempts: 3, status: 'PENDING' }]);
    expect(await unshelve(scene.db.pool, 'postcommit', { destination: 'kafka', rateMax: 100, countMax: 10 })).toBe(1);
    const story = await scene.admin.find(id);
    expect(story).toMatchObject({ status: 'PENDING', attempts: 3, waitingFor: [], done: ['nats'] });
    expect(story).not.toHaveProperty('waitingSince');
    expect(await scene.admin.counts()).toMatchObject({ pending: 1, shelved: 0 });
  });

  test('counts as pending, once, and not as delivered', async () => {
    const ids = await scene.emit(Array.from({ length: 9 }, (_, i) => ({ aggregate: ['order', String(i)] as const })));
    await deliver(ids.slice(0, 2));
    await scene.shelve(ids.slice(2, 5), ['kafka']);
    await scene.shelve(ids.slice(5, 7), ['kafka', 'webhooks', 'nats']);
    expect(await scene.admin.counts()).toMatchObject({
      pending: 7,
      shelved: 5,
      processing: 0,
      waiting: 0,
      delivered: 2,
      failed: 0,
      exact: { pending: true, shelved: true, delivered: true },
    });
  });

  test('is as late as it is old, so that an outage shows', async () => {
    const [old, delayed, fresh] = (await scene.emit([
      {},
      { aggregate: ['order', '2'] },
      { aggregate: ['order', '3'] },
    ])) as [string, string, string];
    await scene.db.query(`update postcommit.outbox_events set created_at = now() - interval '1 hour' where id <> $1`, [
      fresh,
    ]);
    await scene.shelve([old, delayed], ['kafka']);
    const oldest = async () => (await scene.admin.counts()).oldestPendingMs as number;
    expect(await oldest()).toBeGreaterThanOrEqual(3_600_000);
    await scene.db.query('delete from postcommit.outbox_shelf where seq = $1', [await scene.seqOf(old)]);
    await scene.db.query(
      `update postcommit.outbox_events set available_at = now() - interval '20 minutes' where id = $1`,
      [delayed],
    );
    const late = await oldest();
    expect(late).toBeGreaterThanOrEqual(1_200_000);
    expect(late).toBeLessThan(3_000_000);
    await scene.db.query('delete from postcommit.outbox_shelf');
    expect(await oldest()).toBeLessThan(600_000);
  });

  test('is estimated past the cap, which says so', async () => {
    await scene.db.query(
      `insert into postcommit.outbox_events (aggregate_type, aggregate_id, event_type, payload)
       select 'order', i::text, 'order.created', '{}' from generate_series(1, 6000) i`,
    );
    await scene.db.query('delete from postcommit.outbox_queue where seq > 1000');
    // Every event waits for two destinations.
    await scene.db.query(
      `insert into postcommit.outbox_shelf (destination, seq, attempts, takeovers)
       select d, seq, 0, 0 from generate_series(1001, 5000) seq, unnest('{kafka,webhooks}'::text[]) d`,
    );
    await scene.db.query('vacuum analyze');
    expect(await count(scene.db.pool, 'postcommit')).toMatchObject({
      pending: 5_000,
      shelved: 4_000,
      delivered: 1_000,
    });
    const counts = await count(scene.db.pool, 'postcommit', 2_000);
    expect(counts.exact).toMatchObject({ pending: false, shelved: false, delivered: false, processing: true });
    expect(counts.shelved / 4_000, `${counts.shelved}`).toBeGreaterThan(0.9);
    expect(counts.shelved / 4_000, `${counts.shelved}`).toBeLessThan(1.1);
    expect(counts.pending).toBe(1_000 + counts.shelved);
  });

  test('is not replayed, whether it was delivered before or not', async () => {
    const [sent, never, again] = (await scene.emit([
      {},
      { aggregate: ['order', '2'] },
      { aggregate: ['order', '3'] },
    ])) as [string, string, string];
    await deliver([sent, again]);
    expect(await scene.admin.replay({ ids: [again] })).toEqual({ count: 1 });
    await scene.shelve([never, again], ['kafka']);
    expect(await scene.admin.find(again)).toMatchObject({ status: 'PENDING', waitingFor: ['kafka'] });
    expect(await scene.admin.replay({ ids: [never, again] })).toEqual({ count: 0 });
    expect(await scene.admin.replay({ all: true })).toEqual({ count: 1 });
    expect(await scene.db.query('select seq::text from postcommit.outbox_queue')).toEqual([
      { seq: await scene.seqOf(sent) },
    ]);
    expect(await scene.admin.counts()).toMatchObject({ pending: 3, shelved: 2, delivered: 0 });
  });

  test('is left alone by what operators do with dead letters', async () => {
    const [shelved, dead, held] = (await scene.emit([
      {},
      { payload: { does: 'reject' } },
      { aggregate: ['order', '2'] },
    ])) as [string, string, string];
    await scene.shelve([shelved], ['kafka']);
    await scene.db.query(
      `insert into postcommit.outbox_dead_letters (seq, reason, attempts, key, blocking, error)
       select q.seq, 'rejected', 1, q.key, e.id = $1, 'no' from postcommit.outbox_queue q
         join postcommit.outbox_events e on e.seq = q.seq`,
      [held],
    );
    await scene.db.query(
      `delete from postcommit.outbox_queue where seq = (select seq from postcommit.outbox_events where id = $1)`,
      [dead],
    );
    await scene.db.query(`update postcommit.outbox_queue set blocking = true, available_at = 'infinity'`);
    expect(await scene.admin.counts()).toMatchObject({ pending: 1, shelved: 1, failed: 2, delivered: 0 });
    expect(await scene.admin.retry({ ids: [shelved] })).toEqual({ count: 0 });
    expect(await scene.admin.discard({ ids: [shelved] })).toEqual({ count: 0 });
    expect(await scene.admin.retry({ ids: [dead] })).toEqual({ count: 1 });
    expect(await scene.admin.discard({ all: true })).toEqual({ count: 1 });
    expect(await scene.admin.find(shelved)).toMatchObject({ status: 'PENDING', waitingFor: ['kafka'] });
    expect(await scene.admin.counts()).toMatchObject({ pending: 2, shelved: 1, failed: 0 });
  });

  test('is still pending when its destination is up, until its turn comes', async () => {
    const id = await scene.emitOne();
    await scene.shelve([id], ['kafka']);
    await openCircuit(
      scene.db.pool,
      'postcommit',
      { destination: 'kafka', error: 'away', retryAfterMs: 0 },
      { probeDelayMs: 1_000, probeDelayMsMax: 1_000 },
    );
    await closeCircuit(scene.db.pool, 'postcommit', 'kafka');
    await circuitProven(scene.db.pool, 'postcommit', 'kafka');
    expect(await scene.admin.destinations()).toMatchObject([{ name: 'kafka', state: 'up', waiting: 1 }]);
    expect((await scene.admin.list({ status: 'PENDING' })).events).toMatchObject([{ id }]);
  });

  test('is listed once with the pending ones, in its place, whatever the filter and the page size', async () => {
    const random = seededRandom();
    await scene.useHugeSeqs();
    const ids = await scene.emit(
      Array.from({ length: 120 }, () => ({
        type: random.pick(['order.created', 'order.paid']),
        aggregate: [random.pick(['order', 'invoice']), String(random.integer(1, 10))] as const,
      })),
    );
    const some = (share: number) => ids.filter(() => random.chance(share));
    const inQueue = async (chosen: readonly string[]) => {
      const rows = await scene.db.query<{ id: string }>(
        'select id from postcommit.outbox_queue join postcommit.outbox_events using (seq) where id = any ($1::uuid[])',
        [chosen],
      );
      return rows.map(({ id }) => id);
    };
    await deliver(await inQueue(some(0.2)));
    await scene.admin.replay({
      ids: (await scene.admin.list({ status: 'SENT', limit: 5 })).events.map(({ id }) => id),
    });
    await scene.shelve(await inQueue(some(0.2)), ['kafka']);
    await scene.shelve(await inQueue(some(0.2)), ['kafka', 'webhooks', 'nats']);
    await scene.db.query(
      `with r as (insert into postcommit.outbox_relays (name, host, pid, lease_until) values ('r', 'h', 1, 'infinity') returning token)
       update postcommit.outbox_queue set claimed_by = (select token from r) where seq % 5 = 0`,
    );
    const rows = await scene.db.query<{ id: string; status: EventStatus; event_type: string; aggregate_type: string }>(
      'select * from postcommit.outbox_status order by seq',
    );
    const [{ both } = { both: 0 }] = await scene.db.query<{ both: number }>(
      'select count(*)::integer as both from (select from postcommit.outbox_shelf group by seq having count(*) > 1) h',
    );
    expect(both, 'some wait for several').toBeGreaterThan(2);

    const filters = fc.record(
      {
        type: fc.constantFrom('order.created', 'order.paid', 'no.such'),
        aggregate: fc.constantFrom(['order'] as const, ['invoice'] as const),
        order: fc.constantFrom('newest' as const, 'oldest' as const),
        limit: fc.integer({ min: 1, max: 60 }),
      },
      { requiredKeys: [] },
    );
    const statuses = fc.constantFrom<EventStatus>('PENDING', 'PENDING', 'PENDING', 'PROCESSING', 'SENT');
    await fc.assert(
      fc.asyncProperty(statuses, filters, async (status, filter) => {
        const expected = rows
          .filter((row) => row.status === status)
          .filter((row) => filter.type === undefined || row.event_type === filter.type)
          .filter((row) => filter.aggregate === undefined || row.aggregate_type === filter.aggregate[0])
          .map(({ id }) => id);
        if (filter.order !== 'oldest') expected.reverse();
        const found: string[] = [];
        let after: string | undefined;
        do {
          const page = await scene.admin.list({ ...filter, status, ...(after && { after }) });
          if (page.next) expect(page.events).toHaveLength(filter.limit ?? 50);
          found.push(...page.events.map(({ id }) => id));
          after = page.next;
        } while (after !== undefined);
        expect(found).toEqual(expected);
      }),
      { seed: random.seed, numRuns: 80 },
    );
  });
});
