import { AsyncLocalStorage } from 'node:async_hooks';
import pg from 'pg';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, onTestFinished, test, vi } from 'vitest';
import { doorbellChannel } from '../../src/database/identifier.ts';
import { migrate } from '../../src/database/migrate.ts';
import { RelayNotifier } from '../../src/emit/relay-notifier.ts';
import { createOutbox, createRelay, fromPg, type Outbox, type OutboxDatabase, type Relay } from '../../src/index.ts';
import { listenInProcess } from '../../src/outbox/emitting/notify.ts';
import { type Child, endChild, startChild } from '../support/child.ts';
import { createTestDatabase, type TestDatabase } from '../support/database.ts';
import { quietPool } from '../support/quiet-pool.ts';
import { until } from '../support/wait.ts';

const event = { type: 'notified', aggregate: ['bell', '1'], payload: null } as const;
/** So long that no test waits for it: a delivery means that the relay was notified. */
const pollIntervalMs = 60_000;

describe('the doorbell', () => {
  let database: TestDatabase;
  let pool: pg.Pool;
  let db: OutboxDatabase<pg.ClientBase>;

  beforeAll(async () => {
    database = await createTestDatabase();
  });
  beforeEach(() => {
    pool = quietPool(database.url, { max: 3 });
    db = fromPg(pool) as OutboxDatabase<pg.ClientBase>;
  });
  afterEach(async () => {
    releaseKept();
    await pool.end();
  });
  afterAll(() => database.close());

  async function inTransaction(client: pg.ClientBase, outbox: Outbox<pg.ClientBase>): Promise<string> {
    await client.query('begin');
    const id = await outbox.emit(client, event);
    await client.query('commit');
    return id;
  }

  /** The ways to emit; each returns the event's id once its transaction has committed. */
  const ways: [string, (outbox: Outbox<pg.ClientBase>) => Promise<string>][] = [
    ['outbox.transaction', (outbox) => outbox.transaction((_tx, emit) => emit(event))],
    [
      'emit on a client of the pool',
      async (outbox) => {
        const client = await pool.connect();
        const id = await inTransaction(client, outbox);
        client.release();
        return id;
      },
    ],
    [
      'emit on a client that is kept',
      async (outbox) => {
        // Not released until the test ends: the notification must come with the commit.
        const client = await pool.connect();
        kept.push(client);
        return inTransaction(client, outbox);
      },
    ],
    [
      'emit on a client of one’s own',
      async (outbox) => {
        const client = new pg.Client({ connectionString: database.url });
        await client.connect();
        const id = await inTransaction(client, outbox);
        await client.end();
        return id;
      },
    ],
  ];
  const kept: pg.PoolClient[] = [];
  function releaseKept(): void {
    for (const client of kept.splice(0)) client.release();
  }

  describe('wakes a relay in this process, without the database', () => {
    const delivered = new Set<string>();
    let relay: Relay;
    beforeAll(async () => {
      relay = createRelay({
        connectionString: database.url,
        pollIntervalMs,
        handlers: { notified: { note: ({ id }) => void delivered.add(id) } },
      });
      await relay.start();
    });
    afterAll(() => relay.stop());

    test.each(ways)('%s', async (_name, emit) => {
      const outbox = createOutbox({ db, notify: false });
      // Several times: the relay may already be awake for the first.
      for (let i = 0; i < 5; i++) {
        const id = await emit(outbox);
        await until(() => delivered.has(id), { what: 'the relay was woken' });
        await until(async () => (await queued()) === 0, { what: 'it has settled and is waiting again' });
        releaseKept();
      }
    });

    test('with the commit, not with one of the statements before it', async () => {
      const outbox = createOutbox({ db, notify: false });
      const client = new pg.Client({ connectionString: database.url });
      await client.connect();
      await client.query('begin');
      const id = await outbox.emit(client, event);
      let notifications = 0;
      const stopListening = listenInProcess('postcommit', () => notifications++);
      for (let i = 0; i < 20; i++) await client.query('select 1');
      await client.query('savepoint a');
      await client.query('rollback to savepoint a');
      expect(notifications).toBe(0);
      await client.query('commit');
      expect(notifications).toBe(1);
      await client.query('select 1');
      expect(notifications).toBe(1);
      stopListening();
      await until(() => delivered.has(id), { what: 'the relay was woken' });
      await client.end();
    });
  });

  describe('wakes a relay in another process', () => {
    let child: Child;
    beforeAll(async () => {
      child = startChild('test/emit/listening-relay.child.ts', [database.url]);
      await child.next(({ started }) => started);
    });
    afterAll(() => endChild(child));

    test.each(ways)('%s', async (_name, emit) => {
      const outbox = createOutbox({ db });
      for (let i = 0; i < 5; i++) {
        const id = await emit(outbox);
        await child.next((message) => message.id === id, 10_000);
        await until(async () => (await queued()) === 0, { what: 'it has settled and is waiting again' });
        releaseKept();
      }
    });

    test('with a pool of a single connection', async () => {
      const single = quietPool(database.url, { max: 1 });
      const outbox = createOutbox({ db: fromPg(single) });
      for (let i = 0; i < 3; i++) {
        const client = await single.connect();
        const id = await inTransaction(client, outbox as Outbox<pg.ClientBase>);
        client.release();
        await child.next((message) => message.id === id, 10_000);
      }
      await single.end();
    });
  });

  describe('NOTIFY stays out of the business transaction', () => {
    let listener: pg.Client;
    let received: pg.Notification[];

    beforeEach(async () => {
      received = [];
      listener = new pg.Client({ connectionString: database.url });
      await listener.connect();
      listener.on('notification', (message) => received.push(message));
      await listener.query(`listen ${doorbellChannel('postcommit')}`);
    });
    afterEach(() => listener.end());

    /** The notifications so far. They arrive in the order of their commits, so a last one of our own ends the list. */
    async function receivedSoFar(): Promise<pg.Notification[]> {
      await database.query(`select pg_notify($1, 'last')`, [doorbellChannel('postcommit')]);
      const isLast = ({ payload }: pg.Notification) => payload === 'last';
      await until(() => received.some(isLast), { what: 'the last notification came' });
      return received.splice(0, received.findIndex(isLast) + 1).slice(0, -1);
    }

    test('none while it is open; afterwards one from another connection', async () => {
      const outbox = createOutbox({ db });
      const client = new pg.Client({ connectionString: database.url });
      await client.connect();
      await client.query('begin');
      await outbox.emit(client, event);
      expect(await receivedSoFar()).toEqual([]);
      await client.query('commit');
      const [first] = await until(() => (received.length > 0 ? received : undefined), { what: 'relays were notified' });
      expect(first?.payload).toBe('');
      expect(first?.processId).not.toBe((client as unknown as { processID: number }).processID);
      await client.end();
    });

    test('none for a transaction that failed, and none with notify: false', async () => {
      const failing = createOutbox({ db }).transaction(async (_tx, emit) => {
        await emit(event);
        throw new Error('out of stock');
      });
      await expect(failing).rejects.toThrow('out of stock');
      await createOutbox({ db, notify: false }).transaction((_tx, emit) => emit(event));
      expect(await receivedSoFar()).toEqual([]);
    });

    test('many commits share few notifications', async () => {
      const writers = 8;
      const many = quietPool(database.url, { max: writers + 1 });
      let sent = 0;
      const side = {
        query: async (text: string, values?: unknown[]) => {
          sent++;
          return many.query(text, values);
        },
      };
      const outbox = createOutbox({ db: { ...(fromPg(many) as typeof db), side } });
      await Promise.all(Array.from({ length: writers }, () => many.query('select pg_sleep(0.01)')));
      const start = performance.now();
      const writer = async () => {
        for (let i = 0; i < 50; i++) await outbox.transaction((_tx, emit) => emit({ ...event, key: null }));
      };
      await Promise.all(Array.from({ length: writers }, writer));
      const notifications = await receivedSoFar();
      // The first few are immediate, because the pace is not known yet; then 2 ms apart, however they are sent.
      const most = (performance.now() - start) / 2 + writers + 6;
      expect(notifications.length).toBeGreaterThan(0);
      expect(notifications.length).toBeLessThanOrEqual(most);
      expect(sent).toBeLessThanOrEqual(most);
      await many.end();
    });

    test('a side connection that fails costs only the notification', async () => {
      const outbox = createOutbox({ db: { ...db, side: { query: () => Promise.reject(new Error('no connection')) } } });
      for (const [, emit] of ways.slice(1)) await emit(outbox); // outbox.transaction sends NOTIFY along with COMMIT.
      expect(await receivedSoFar()).toEqual([]);
    });
  });

  describe('the pace of NOTIFY, on a fake clock', () => {
    let notifiedAt: number[];
    let underWay: number;
    let notifier: RelayNotifier;
    let start: number;

    beforeEach(async () => {
      notifiedAt = [];
      underWay = 0;
      await pool.query('select 1'); // Connecting uses timers too: do it before they are faked.
      vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout', 'performance'] });
      start = performance.now();
      const side = {
        query: async (text: string, values?: unknown[]) => {
          notifiedAt.push(performance.now() - start);
          underWay++;
          return pool.query(text, values).finally(() => underWay--);
        },
      };
      notifier = new RelayNotifier(side, 'postcommit', true);
    });
    afterEach(() => {
      vi.useRealTimers();
    });

    /** Waits for the server to answer while the fake clock stands still. */
    async function answered(): Promise<void> {
      do await new Promise((turn) => setImmediate(turn));
      while (underWay > 0);
      await new Promise((turn) => setImmediate(turn));
    }

    async function pass(ms: number): Promise<void> {
      for (let passed = 0; passed < ms; passed++) {
        await vi.advanceTimersByTimeAsync(1);
        await answered();
      }
    }

    /** Returns the times of the commits. */
    async function commit(count: number, ...everyMs: number[]): Promise<number[]> {
      const times: number[] = [];
      for (let n = 0; n < count; n++) {
        times.push(performance.now() - start);
        notifier.notifyAfterCommit(['default']);
        await answered();
        await pass(everyMs[n % everyMs.length] as number);
      }
      return times;
    }

    const gaps = (times: number[]) => times.slice(1).map((time, n) => time - (times[n] as number));

    test('notifies immediately for each of a few commits', async () => {
      const spread = await commit(20, 4);
      expect(notifiedAt).toEqual(spread);
      await pass(20);
      const three = await commit(3, 1);
      expect(notifiedAt.slice(20)).toEqual(three);
    });

    test('notifies every 2 ms when there are more', async () => {
      const times = await commit(60, 1, 2);
      expect(notifiedAt.slice(0, 6)).toEqual(times.slice(0, 6));
      for (const gap of gaps(notifiedAt.slice(5))) expect(gap).toBeGreaterThanOrEqual(2);
      expect(notifiedAt.length).toBeLessThan(times.length);
      for (const time of times) expect(notifiedAt.some((at) => at >= time && at <= time + 2)).toBe(true);
    });

    test('notifies every 50 ms in a stream, after a first pause of 5 ms, and for the last commit', async () => {
      const times = await commit(400, 1);
      const before = notifiedAt.length;
      await pass(60);
      const pauses = gaps(notifiedAt);
      const first = pauses.findIndex((gap) => gap >= 5);
      expect(pauses.slice(0, first).every((gap) => gap <= 2)).toBe(true);
      expect(first).toBeLessThan(8);
      expect(pauses[first]).toBe(5);
      expect(new Set(pauses.slice(first + 1))).toEqual(new Set([50]));
      expect(notifiedAt.length).toBe(before + 1);
      expect(notifiedAt.at(-1)).toBeGreaterThanOrEqual(times.at(-1) as number);
      await pass(20);
      const [single] = await commit(1, 1);
      expect(notifiedAt.at(-1)).toBe(single);
    });

    test('notifies immediately for the first few of many simultaneous commits, and later for the last', async () => {
      const sent = Array.from({ length: 50 }, () => notifier.notifySqlForCommit(['default']) !== undefined);
      expect(sent.filter(Boolean).length).toBeLessThanOrEqual(6);
      for (const along of sent) notifier.notifyAfterCommit(['default'], along);
      await pass(10);
      expect(notifiedAt.length).toBeGreaterThan(0);
      expect(notifiedAt.length).toBeLessThanOrEqual(3);
    });

    test('counts a NOTIFY sent along with COMMIT like one sent on the side connection', async () => {
      let along = 0;
      for (let n = 0; n < 400; n++) {
        const isAlong = notifier.notifySqlForCommit(['default']) !== undefined;
        if (isAlong) along++;
        notifier.notifyAfterCommit(['default'], isAlong);
        await answered();
        await pass(1);
      }
      expect(along).toBeGreaterThan(0);
      expect(along + notifiedAt.length).toBeLessThanOrEqual(400 / 50 + 10);
    });
  });

  describe('in a schema whose name is that of an event of EventEmitter', () => {
    beforeAll(() => migrate({ connectionString: database.url, schema: 'error' }));

    // No relay of this process listens, and an event `error` without a listener throws.
    test.each(ways)('a commit does not fail: %s', async (_name, emit) => {
      const outbox = createOutbox({ db, schema: 'error' });
      const id = await emit(outbox);
      expect(await database.query('select id from error.outbox_events where id = $1', [id])).toEqual([{ id }]);
    });

    test('a relay that starts wakes no other one', () => {
      const woken: unknown[] = [];
      onTestFinished(listenInProcess('newListener', (queues) => void woken.push(queues)));
      onTestFinished(listenInProcess('postcommit', () => {}));
      expect(woken).toEqual([]);
    });
  });

  describe('the AsyncLocalStorage of a request does not leak', () => {
    const storage = new AsyncLocalStorage<string>();

    test('into the notifier', async () => {
      const seen: (string | undefined)[] = [];
      const { side: ownSide } = db;
      const side = {
        query: async (text: string, values?: unknown[]) => {
          seen.push(storage.getStore());
          return ownSide.query(text, values);
        },
      };
      const outbox = createOutbox({ db: { ...db, side } });
      for (const [, emit] of ways.slice(1)) {
        const before = seen.length;
        await storage.run('request', () => emit(outbox));
        await until(() => seen.length > before, { what: 'it has notified' });
      }
      expect(seen.every((store) => store === undefined)).toBe(true);
    });

    test('into the handlers of a relay that was started in a request', async () => {
      const stores: (string | undefined)[] = [];
      const relay = createRelay({
        connectionString: database.url,
        pollIntervalMs: 20,
        handlers: { notified: { note: () => void stores.push(storage.getStore()) } },
      });
      await storage.run('request', () => relay.start());
      const outbox = createOutbox({ db });
      // Woken from within another request, and by its own clock.
      await storage.run('another request', () => outbox.transaction((_tx, emit) => emit(event)));
      await until(() => stores.length >= 1, { what: 'it was delivered' });
      await database.query(`select postcommit.emit('notified', 'bell', '2', 'null')`);
      await until(async () => (await queued()) === 0, { what: 'everything was delivered' });
      await relay.stop();
      expect(stores.every((store) => store === undefined)).toBe(true);
    });
  });

  async function queued(): Promise<number> {
    const [row] = await database.query<{ n: number }>('select count(*)::integer as n from postcommit.outbox_queue');
    return row?.n ?? -1;
  }
});
