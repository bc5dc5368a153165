import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { createOutbox, fromPg, type OutboxAdmin } from '../../src/index.ts';
import { registerRelay } from '../../src/outbox/delivering/register-relay.ts';
import type { Handler, HandlerContext } from '../../src/relay/deliver/handlers.ts';
import { postgresVersions, serverUrlOf } from '../support/postgres-versions.ts';
import { seededRandom } from '../support/random.ts';
import { RelayScenario } from '../support/relay-scenario.ts';
import { deferred, until, within } from '../support/wait.ts';

const soon = { pollIntervalMs: 100, stopTimeoutMs: 0, deliverTimeoutMs: 600_000 };

/** Until the signal is aborted. Then it throws the reason. */
const untilAborted = ({ signal }: HandlerContext) =>
  new Promise<never>((_, reject) => {
    signal.addEventListener('abort', () => reject(signal.reason));
    if (signal.aborted) reject(signal.reason);
  });

describe.each(postgresVersions)('an event that a relay is delivering, on PostgreSQL %i', (version) => {
  let scenario: RelayScenario;
  let admin: OutboxAdmin;

  beforeEach(async () => {
    scenario = await RelayScenario.create({ serverUrl: serverUrlOf(version) });
    admin = createOutbox({ db: fromPg(scenario.db.pool) }).admin;
  });
  afterEach(() => scenario.close());

  const leftovers = async () =>
    (
      await scenario.db.query(
        `select (select count(*) from postcommit.outbox_queue)::integer as queued,
                (select count(*) from postcommit.outbox_cancellations)::integer as cancellations`,
      )
    )[0];

  test.each([true, false])(
    'is cancelled: its signal is aborted, no result counts, and its history has who and why; with listen %s',
    async (listen) => {
      const calls: string[] = [];
      const aborted = deferred<unknown>();
      const work: Handler = async ({ seq }, ctx) => {
        calls.push(seq);
        if (seq === '1') await untilAborted(ctx).catch((reason) => aborted.resolve(reason));
      };
      const relay = await scenario.relay('one', { ...soon, listen, handlers: { scripted: { work } } });
      const [id = '', next = ''] = await scenario.emitLine('a', 2);
      await until(() => calls.length === 1, { what: 'it is being delivered' });
      const who = { by: 'ann', reason: 'wrong year' };
      expect(await admin.cancel({ ids: [id] }, who)).toEqual({ count: 1, running: 1, delivered: 0 });
      const [{ role }] = await scenario.db.query('select session_user::text as role');
      const error = `ann cancelled the event, as the database role ${role}: wrong year`;
      expect(await within(aborted.promise, { timeoutMs: 5_000, what: 'the handler is told' })).toMatchObject({
        code: 'POSTCOMMIT_E_EVENT_CANCELLED',
        message: expect.stringContaining(error),
      });
      await until(() => relay.stats().delivered === 1, { what: 'the next event is delivered' });
      expect(calls).toEqual(['1', '2']);
      expect(await admin.find(id)).toMatchObject({
        status: 'FAILED',
        deliveries: [],
        deadLetter: { reason: 'cancelled', error, cancelled: who, discardedAt: expect.any(Date), blocking: false },
        failures: [{ relay: 'operator', code: 'POSTCOMMIT_E_EVENT_CANCELLED', error }],
      });
      expect(await admin.find(next)).toMatchObject({ status: 'SENT' });
      await until(async () => (await leftovers()).cancellations === 0, { what: 'the relay has reported its end' });
      expect(await leftovers()).toEqual({ queued: 0, cancellations: 0 });
      expect(relay.stats()).toMatchObject({ delivered: 1, failed: 0, deadLettered: 0, inFlight: 0 });
    },
  );

  test('and whose handler ignores the signal does not hold its key up', async () => {
    const calls: string[] = [];
    const work: Handler = ({ seq }) => {
      calls.push(seq);
      return seq === '1' ? new Promise(() => {}) : undefined;
    };
    const relay = await scenario.relay('one', { ...soon, handlers: { scripted: { work } } });
    const [id = ''] = await scenario.emitLine('a', 3);
    await until(() => calls.length === 1, { what: 'it is being delivered' });
    expect(await admin.cancel({ ids: [id] })).toMatchObject({ count: 1, running: 1 });
    await until(() => relay.stats().delivered === 2, { what: 'those behind it are delivered' });
    expect(calls).toEqual(['1', '2', '3']);
    await until(async () => (await leftovers()).queued === 0, { what: 'nothing is left' });
    expect(relay.stats()).toMatchObject({ cancelled: 1, fenced: 0 });
  });

  test('keeps later events of its key from starting in any relay until its handler has ended', async () => {
    const proxy = await scenario.proxy();
    const steps: string[] = [];
    const work =
      (name: string): Handler =>
      async ({ seq }, ctx) => {
        steps.push(`${name} begins ${seq}`);
        if (seq === '1') await untilAborted(ctx).catch(() => {});
        steps.push(`${name} ends ${seq}`);
      };
    const first = {
      ...soon,
      connectionString: proxy.url(scenario.db.url),
      handlers: { scripted: { work: work('one') } },
    };
    await scenario.relay('one', first);
    const [id = ''] = await scenario.emit([{ aggregateId: 'a' }]);
    await until(() => steps.length === 1, { what: 'it is being delivered' });
    // The first relay does not know of it yet.
    const told = proxy.holdRequest({ text: /from "postcommit".outbox_cancellations/ });
    expect(await admin.cancel({ ids: [id] })).toMatchObject({ count: 1, running: 1 });
    await within(told.caught, { what: 'the relay looks for cancelled events' });
    await scenario.relay('two', { ...soon, handlers: { scripted: { work: work('two') } } });
    await scenario.emit([{ aggregateId: 'a' }, { aggregateId: 'b' }]);
    await until(() => steps.some((step) => step.endsWith('ends 3')), { what: 'another key is delivered' });
    expect(steps.filter((step) => /[12]$/.test(step))).toEqual(['one begins 1']);
    told.release();
    await scenario.drained();
    const ofKey = steps.filter((step) => /[12]$/.test(step)).map((step) => step.replace(/^\w+ /, ''));
    expect(ofKey).toEqual(['begins 1', 'ends 1', 'begins 2', 'ends 2']);
  });

  test('or was to be delivered next by it does not start any more', async () => {
    const calls: string[] = [];
    const ended = deferred();
    const work: Handler = async ({ seq }, ctx) => {
      calls.push(seq);
      if (seq !== '1') return;
      await untilAborted(ctx).catch(() => {});
      ended.resolve();
    };
    await scenario.relay('one', { ...soon, inFlightMax: 1, handlers: { scripted: { work } } });
    const ids = await scenario.emit(['a', 'b', 'c'].map((aggregateId) => ({ aggregateId })));
    await until(async () => (await admin.counts()).processing === 2, { what: 'the second one is claimed too' });
    await until(() => calls.length === 1, { what: 'the first is being delivered' });
    expect(await admin.cancel({ ids: ids.slice(1, 2) })).toMatchObject({ count: 1, running: 1 });
    // When the first one is aborted, the relay knows of the second one too.
    expect(await admin.cancel({ ids: ids.slice(0, 1) })).toMatchObject({ count: 1, running: 1 });
    await ended.promise;
    await until(async () => (await leftovers()).queued === 0, { what: 'nothing is left' });
    expect(calls).toEqual(['1', '3']);
  });

  test('by a relay that has ended since does not hold its key up, and can be taken back only then', async () => {
    const [id = '', next = ''] = await scenario.emitLine('a', 2);
    const token = await registerRelay(scenario.db.pool, 'postcommit', {
      name: 'gone',
      host: 'h',
      pid: 1,
      leaseMs: 3_600_000,
    });
    await scenario.db.query('update postcommit.outbox_queue set claimed_by = $1 where seq = 1', [token]);
    expect(await admin.cancel({ ids: [id] })).toEqual({ count: 1, running: 1, delivered: 0 });
    expect(await admin.cancel({ ids: [id] })).toEqual({ count: 0, running: 0, delivered: 0 });
    expect(await admin.find(id)).toMatchObject({ status: 'FAILED' });
    expect(await admin.counts()).toMatchObject({ pending: 1, processing: 0, failed: 0 });
    expect(await admin.retry({ ids: [id] })).toEqual({ count: 0 });
    const relay = await scenario.relay('other', { ...soon });
    await scenario.emit([{ aggregateId: 'b' }]);
    await until(() => relay.stats().delivered === 1, { what: 'another key is delivered' });
    expect(await admin.find(next)).toMatchObject({ status: 'PENDING' });
    await scenario.db.query('update postcommit.outbox_relays set ended_at = now() where token = $1', [token]);
    await relay.stop();
    const after = await scenario.relay('after', { ...soon });
    await until(() => after.stats().delivered === 1, { what: 'the next event is delivered' });
    expect(await admin.retry({ ids: [id] })).toEqual({ count: 1 });
    await until(async () => (await admin.find(id))?.status === 'SENT', { what: 'it is delivered after all' });
    expect(await leftovers()).toEqual({ queued: 0, cancellations: 0 });
  });

  test('or has just delivered is cancelled or delivered, never both and never neither, and the answer says which', async () => {
    const random = seededRandom();
    const handled = new Set<string>();
    let workMsMax = 5;
    const work: Handler = async ({ id }) => {
      await new Promise((resolve) => setTimeout(resolve, random.integer(0, workMsMax)));
      handled.add(id);
    };
    const relays = await Promise.all(
      ['one', 'two'].map((name) =>
        scenario.relay(name, { ...soon, inFlightMax: 20, handlers: { scripted: { work } } }),
      ),
    );
    const totals = { count: 0, delivered: 0 };
    const ids: string[] = [];
    // On a busy machine all may be delivered before the first is cancelled: then there are more rounds, with longer work.
    for (let round = 0; round < 5 || (totals.count === 0 && round < 12); round++) {
      if (round >= 5) workMsMax *= 2;
      const emitted = await scenario.emit(Array.from({ length: 50 }, (_, n) => ({ aggregateId: `a${n % 10}` })));
      ids.push(...emitted);
      const results = await Promise.all(
        emitted.map(async (id) => {
          await new Promise((resolve) => setTimeout(resolve, random.integer(0, 120)));
          return { id, ...(await admin.cancel({ ids: [id] })) };
        }),
      );
      const stories = await Promise.all(emitted.map((id) => admin.find(id)));
      for (const [index, { id, count, delivered }] of results.entries()) {
        expect(count + delivered, `${id} is one of the two`).toBe(1);
        totals.count += count;
        totals.delivered += delivered;
        expect(stories[index]?.status, id).toBe(count === 1 ? 'FAILED' : 'SENT');
        if (delivered === 1) expect(handled.has(id)).toBe(true);
      }
    }
    await until(async () => (await leftovers()).cancellations === 0, { what: 'all deliveries have ended' });
    expect(await leftovers()).toEqual({ queued: 0, cancellations: 0 });
    const [both] = await scenario.db.query(
      `select count(*)::integer as n from postcommit.outbox_dead_letters d join postcommit.outbox_deliveries x on x.seqs @> d.seq`,
    );
    expect(both).toEqual({ n: 0 });
    expect(totals.count + totals.delivered).toBe(ids.length);
    expect(totals.count).toBeGreaterThan(0);
    expect(totals.delivered).toBeGreaterThan(0);
    const sum = (name: 'delivered') => relays.reduce((total, relay) => total + relay.stats()[name], 0);
    await until(() => sum('delivered') === totals.delivered, { what: 'the relays count the same' });
  });
});
