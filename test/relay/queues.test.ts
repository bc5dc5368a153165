import { describe, expect, test } from 'vitest';
import type { Handler } from '../../src/index.ts';
import { createOutbox, fromPg } from '../../src/index.ts';
import { notifyRelays } from '../../src/outbox/emitting/notify.ts';
import { type RelayScenario, withScenario } from '../support/relay-scenario.ts';
import { ScriptedPublisher } from '../support/scripted-publisher.ts';
import { until } from '../support/wait.ts';

const adminOf = (scenario: RelayScenario) => createOutbox({ db: fromPg(scenario.db.pool) }).admin;

const queueOfRows = (scenario: RelayScenario) =>
  scenario.db.query<{ seq: string; queue: string; claimed: boolean }>(
    'select seq::text, queue, claimed_by is not null as claimed from postcommit.outbox_queue order by outbox_queue.seq',
  );

/** Handlers that end only when the test says so, by aggregate. */
function gate() {
  const begun: string[] = [];
  const ends = new Map<string, () => void>();
  const handle: Handler = ({ aggregate, seq }) =>
    new Promise<void>((resolve) => {
      begun.push(`${aggregate.id}/${seq}`);
      ends.set(aggregate.id, resolve);
    });
  return { begun, handle, end: (id: string) => ends.get(id)?.() };
}

describe('named queues', () => {
  test(
    'a relay claims only from the queues that it works',
    withScenario(async (scenario) => {
      await scenario.emit(
        Array.from({ length: 20 }, (_, n) => ({ aggregateId: `${n}`, ...(n % 2 ? { queue: 'reports' } : {}) })),
      );
      const claimed: string[] = [];
      const relay = await scenario.relay('default only');
      relay.on('claimed', ({ queue }) => claimed.push(queue));
      await until(() => scenario.journal.ends().length === 10, { what: 'the default queue is empty' });
      await scenario.emit([{ aggregateId: 'last' }]); // Another claim, after which nothing more could come.
      await until(async () => (await scenario.queued()) === 10, { what: 'that one is settled' });
      const left = await queueOfRows(scenario);
      expect(left).toHaveLength(10);
      expect(left.every(({ queue, claimed: isClaimed }) => queue === 'reports' && !isClaimed)).toBe(true);
      await scenario.relay('reports only', { queues: { reports: 2 } });
      await scenario.drained();
      expect(await scenario.findings()).toMatchObject({ lost: [], duplicates: 0 });
      expect(claimed.every((queue) => queue === 'default')).toBe(true);
    }),
  );

  test(
    'a queue whose slots are all taken delays no other',
    withScenario(async (scenario) => {
      const { begun, handle } = gate();
      await scenario.emit(
        Array.from({ length: 200 }, (_, n) => ({ aggregateId: `r${n}`, type: 'report', queue: 'reports' })),
      );
      const delivered: string[] = [];
      const relay = await scenario.relay('one', {
        queues: { reports: 2, default: 10 },
        stopTimeoutMs: 0,
        handlers: { report: { handle }, scripted: { note: ({ seq }) => void delivered.push(seq) } },
      });
      await until(() => begun.length === 2, { what: 'the reports have begun' });
      await scenario.emit(Array.from({ length: 1_000 }, (_, n) => ({ aggregateId: `d${n}` })));
      await until(() => delivered.length === 1_000, { what: 'the default queue is delivered' });
      expect(begun).toHaveLength(2);
      const { queues } = relay.stats();
      expect(queues.reports?.inFlight).toBe(2);
      // It holds a few more, and leaves the rest to other relays.
      expect(queues.reports?.waiting).toBeLessThanOrEqual(4);
    }),
  );

  test(
    'a paused queue is not claimed from, delays no other, and goes on at once when it is resumed',
    withScenario(async (scenario) => {
      const admin = adminOf(scenario);
      await scenario.relay('one', { queues: { default: 10, reports: 2 }, pollIntervalMs: 60_000 });
      await admin.pauseQueue('reports', { reason: 'restore' });
      await scenario.emit(
        Array.from({ length: 20 }, (_, n) => ({ aggregateId: `${n}`, ...(n % 2 ? { queue: 'reports' } : {}) })),
      );
      await until(() => scenario.journal.ends().length === 10, { what: 'the default queue is empty' });
      expect(await admin.queues()).toMatchObject([
        { name: 'default', state: 'active', ready: 0, relays: 1 },
        { name: 'reports', state: 'paused', reason: 'restore', ready: 10, inFlight: 0, relays: 1 },
      ]);
      expect((await queueOfRows(scenario)).some(({ queue, claimed }) => queue === 'reports' && claimed)).toBe(false);
      await admin.resumeQueue('reports');
      await scenario.drained(5_000);
      expect(await admin.queues()).toMatchObject([{ name: 'default' }, { name: 'reports', state: 'active', ready: 0 }]);
    }),
  );

  test(
    'work under way when its queue is paused ends normally',
    withScenario(async (scenario) => {
      const { begun, handle, end } = gate();
      const relay = await scenario.relay('one', { queues: { reports: 1 }, handlers: { scripted: { handle } } });
      await scenario.emit([{ aggregateId: 'a', queue: 'reports' }]);
      await until(() => begun.length === 1, { what: 'it has begun' });
      await adminOf(scenario).pauseQueue('reports');
      end('a');
      await scenario.drained();
      expect(relay.stats()).toMatchObject({ delivered: 1, released: 0 });
    }),
  );

  test.each([
    ['NOTIFY', { listen: true }],
    ['a notification in the same process', { listen: false }],
  ])(
    '%s wakes the lane of the queue',
    (_, { listen }) =>
      withScenario(async (scenario) => {
        await scenario.relay('one', { queues: { default: 1, reports: 1 }, pollIntervalMs: 60_000, listen });
        if (listen) {
          const sql = `select postcommit.emit('scripted', 'thing', 'a', 'null', queue => 'reports')`;
          await scenario.db.query(sql);
          await notifyRelays(scenario.db.pool, 'postcommit', 'reports');
        } else {
          await scenario.emit([{ aggregateId: 'a', queue: 'reports' }]);
        }
        await until(() => scenario.journal.ends().length === 1, { what: 'it was delivered' });
        await scenario.emit([{ aggregateId: 'b' }, { aggregateId: 'c', queue: 'reports' }]);
        await until(() => scenario.journal.ends().length === 3, { what: 'both of one transaction were delivered' });
      })(),
    20_000,
  );

  test.each(['__proto__', 'constructor'])(
    'a queue may be named %s, and its figures are in stats()',
    (queue) =>
      withScenario(async (scenario) => {
        const queues = Object.fromEntries([[queue, 3]]);
        const relay = await scenario.relay('one', { queues, pollIntervalMs: 60_000 });
        await scenario.db.query(`select postcommit.emit('scripted', 'thing', 'a', 'null', queue => '${queue}')`);
        await notifyRelays(scenario.db.pool, 'postcommit', queue);
        await until(() => scenario.journal.ends().length === 1, { what: 'it was delivered' });
        expect(Object.keys(relay.stats().queues)).toEqual([queue]);
      })(),
    20_000,
  );

  test(
    'an event waits for an earlier one of its aggregate in another queue, and follows at once',
    withScenario(async (scenario) => {
      const { begun, handle, end } = gate();
      await scenario.relay('one', {
        queues: { default: 5, reports: 5 },
        pollIntervalMs: 60_000,
        handlers: { report: { handle }, scripted: { note: ({ seq }) => void begun.push(seq) } },
      });
      await scenario.emit([
        { aggregateId: 'a', type: 'report', queue: 'reports' },
        { aggregateId: 'a' },
        { aggregateId: 'b' },
      ]);
      await until(() => begun.length === 2, { what: 'the report, and the event of the other aggregate' });
      expect(begun).toEqual(expect.arrayContaining(['a/1', '3']));
      end('a');
      await until(() => begun.length === 3, { what: 'the event behind the report' });
      expect(begun.at(-1)).toBe('2');
    }),
  );

  test(
    'the same when different relays work the queues',
    withScenario(async (scenario) => {
      const { begun, handle, end } = gate();
      await scenario.relay('reports', { queues: { reports: 5 }, handlers: { report: { handle } } });
      await scenario.relay('default', { handlers: { scripted: { note: ({ seq }) => void begun.push(seq) } } });
      await scenario.emit([
        { aggregateId: 'a', type: 'report', queue: 'reports' },
        { aggregateId: 'a' },
        { aggregateId: 'b' },
      ]);
      await until(() => begun.length === 2, { what: 'the report, and the event of the other aggregate' });
      end('a');
      await until(() => begun.length === 3, { what: 'the event behind the report' });
      expect(begun.at(-1)).toBe('2');
    }),
  );

  test(
    'aggregates that wait for slow work of another queue do not use up the buffer',
    withScenario(async (scenario) => {
      const { begun, handle } = gate();
      const keys = 60;
      const delivered: string[] = [];
      await scenario.relay('one', {
        queues: { reports: keys, default: 5 },
        prefetchMax: 400,
        stopTimeoutMs: 0,
        handlers: { report: { handle }, scripted: { note: ({ seq }) => void delivered.push(seq) } },
      });
      await scenario.emit(
        Array.from({ length: keys }, (_, n) => ({ aggregateId: `k${n}`, type: 'report', queue: 'reports' })),
      );
      await until(() => begun.length === keys, { what: 'the reports have begun' });
      // Each has a backlog behind its report, before everything else in the queue.
      await scenario.emit(Array.from({ length: keys * 40 }, (_, n) => ({ aggregateId: `k${n % keys}` })));
      await scenario.emit(Array.from({ length: 500 }, (_, n) => ({ aggregateId: `free ${n}` })));
      await until(() => delivered.length === 500, { timeoutMs: 15_000, what: 'all that is free was delivered' });
    }),
    60_000,
  );

  test(
    'a lane with room for one event finds it at once, whatever the other lanes do',
    withScenario(async (scenario) => {
      const { begun, handle, end } = gate();
      await scenario.relay('one', {
        queues: { reports: 2, default: 2 },
        prefetchMax: 4,
        batchSizeMax: 2,
        pollIntervalMs: 60_000,
        stopTimeoutMs: 0,
        handlers: { report: { handle }, scripted: { nothing: () => {} } },
      });
      await scenario.emit([{ aggregateId: 'long', type: 'report', queue: 'reports' }]);
      await until(() => begun.length === 1, { what: 'a report that does not end has begun' });
      for (let n = 1; n <= 8; n++) {
        await scenario.emit([{ aggregateId: `r${n}`, type: 'report', queue: 'reports' }]);
        await until(() => begun.length === n + 1, { timeoutMs: 5_000, what: `report ${n} has begun` });
        end(`r${n}`);
        await until(async () => (await scenario.queued()) === 1, { what: 'it is settled' });
        if (n % 2 === 0) await scenario.emit([{ aggregateId: 'x' }]);
      }
    }),
    60_000,
  );

  test(
    'an event returns to its own queue: from the shelf, by a replay, and after it was cancelled',
    withScenario(async (scenario) => {
      const admin = adminOf(scenario);
      const publisher = new ScriptedPublisher();
      const relay = await scenario.relay('one', {
        queues: { reports: 2 },
        destinations: { events: { publisher, probeDelayMs: 50 } },
        route: () => ({ to: 'events', topic: 't' }),
        handlers: {},
        retry: { delaysMs: [0] },
      });
      await relay.stop();
      await admin.pauseDestination('events');
      await relay.start();
      const [id] = await scenario.emit([{ aggregateId: 'a', queue: 'reports' }]);
      const inQueue = async () => (await queueOfRows(scenario)).map(({ queue }) => queue);
      await until(async () => (await admin.counts()).shelved === 1, { what: 'it is on the shelf' });
      await relay.stop();
      await scenario.db.query(`update postcommit.outbox_destinations set paused_at = null`);
      await scenario.db.query(`select postcommit.unshelve('events', 1000, 10, false)`);
      expect(await inQueue()).toEqual(['reports']);
      await relay.start();
      await scenario.drained();
      await relay.stop();
      await admin.replay({ ids: [id as string] });
      expect(await inQueue()).toEqual(['reports']);
      await admin.cancel({ ids: [id as string] });
      expect(await inQueue()).toEqual([]);
      await scenario.db.query('select postcommit.requeue(array[1]::bigint[])');
      expect(await inQueue()).toEqual(['reports']);
    }),
  );

  test(
    'a dead letter returns to its own queue',
    withScenario(async (scenario) => {
      const admin = adminOf(scenario);
      const relay = await scenario.relay('one', { queues: { reports: 2 } });
      const [id] = await scenario.emit([{ aggregateId: 'a', queue: 'reports', script: { reject: true } }]);
      await until(async () => (await admin.counts()).failed === 1, { what: 'it is a dead letter' });
      await relay.stop();
      await admin.retry({ ids: [id as string] });
      expect(await queueOfRows(scenario)).toMatchObject([{ queue: 'reports' }]);
    }),
  );

  test(
    'relays of a rolling deployment with different queues deliver everything',
    withScenario(async (scenario) => {
      const before = await scenario.relay('before');
      await scenario.emit(
        Array.from({ length: 300 }, (_, n) => ({ aggregateId: `${n % 30}`, ...(n % 3 ? {} : { queue: 'reports' }) })),
      );
      await scenario.relay('after', { queues: { default: 10, reports: 2 } });
      await before.stop();
      await scenario.drained();
      expect(await scenario.findings()).toMatchObject({ lost: [], orderViolations: [], overlaps: [] });
    }),
  );

  test(
    'runOnce delivers what is in its queues, in order across them',
    withScenario(async (scenario) => {
      await scenario.emit(
        Array.from({ length: 60 }, (_, n) => ({
          aggregateId: `${n % 6}`,
          queue: ['default', 'a', 'b'][(n % 5) % 3] as string,
        })),
      );
      const relay = scenario.idleRelay('once', { queues: { b: 1, a: 2, default: 3 } });
      expect(await relay.runOnce()).toMatchObject({ delivered: 60 });
      expect(await scenario.findings()).toMatchObject({ lost: [], orderViolations: [], overlaps: [] });
    }),
  );
});
