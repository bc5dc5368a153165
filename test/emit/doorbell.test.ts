import { AsyncLocalStorage } from 'node:async_hooks';
import pg from 'pg';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test, vi } from 'vitest';
import { doorbellChannel } from '../../src/database/identifier.ts';
import { RelayNotifier } from '../../src/emit/relay-notifier.ts';
import { createOutbox, createRelay, fromPg, type Outbox, type OutboxDatabase, type Relay } from '../../src/index.ts';
import { listenInProcess } from '../../src/outbox/emitting/notify.ts';
import { type Child, endChild, startChild } from '../support/child.ts';
import { createTestDatabase, type TestDatabase } from '../support/database.ts';
import { quietPool } from '../support/quiet-pool.ts';
import { until } from '../support/wait.ts';

const event = { type: 'rung', aggregate: ['bell', '1'], payload: null } as const;
/** So long that no test waits for it: what is delivered was rung for. */
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

  /** The ways to emit; each answers the event's id once its transaction has committed. */
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
        // Not released until the test ends: the ring must come with the commit.
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
        handlers: { rung: { note: ({ id }) => void delivered.add(id) } },
      });
      await relay.start();
    });
    afterAll(() => relay.stop());

    test.each(ways)('%s', async (_name, emit) => {
      const outbox = createOutbox({ db, notify: false });
      // Again and again: the first may meet a relay that is awake anyway.
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
      let rings = 0;
      const unhear = listenInProcess('postcommit', () => rings++);
      for (let i = 0; i < 20; i++) await client.query('select 1');
      await client.query('savepoint a');
      await client.query('rollback to savepoint a');
      expect(rings).toBe(0);
      await client.query('commit');
      expect(rings).toBe(1);
      await client.query('select 1');
      expect(rings).toBe(1);
      unhear();
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
    let heard: pg.Notification[];

    beforeEach(async () => {
      heard = [];
      listener = new pg.Client({ connectionString: database.url });
      await listener.connect();
      listener.on('notification', (message) => heard.push(message));
      await listener.query(`listen ${doorbellChannel('postcommit')}`);
    });
    afterEach(() => listener.end());

    /** What was heard until now: notifications come in the order of their commits, so a last one of ours ends the list. */
    async function heardSoFar(): Promise<pg.Notification[]> {
      await database.query(`select pg_notify($1, 'last')`, [doorbellChannel('postcommit')]);
      const isLast = ({ payload }: pg.Notification) => payload === 'last';
      await until(() => heard.some(isLast), { what: 'the last notification came' });
      return heard.splice(0, heard.findIndex(isLast) + 1).slice(0, -1);
    }

    test('none while it is open; afterwards one from another connection', async () => {
      const outbox = createOutbox({ db });
      const client = new pg.Client({ connectionString: database.url });
      await client.connect();
      await client.query('begin');
      await outbox.emit(client, event);
      expect(await heardSoFar()).toEqual([]);
      await client.query('commit');
      const [ring] = await until(() => (heard.length > 0 ? heard : undefined), { what: 'the relays were rung for' });
      expect(ring?.payload).toBe('');
      expect(ring?.processId).not.toBe((client as unknown as { processID: number }).processID);
      await client.end();
    });

    test('none for a transaction that failed, and none with notify: false', async () => {
      const failing = createOutbox({ db }).transaction(async (_tx, emit) => {
        await emit(event);
        throw new Error('out of stock');
      });
      await expect(failing).rejects.toThrow('out of stock');
      await createOutbox({ db, notify: false }).transaction((_tx, emit) => emit(event));
      expect(await heardSoFar()).toEqual([]);
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
      const rings = await heardSoFar();
      // At once while there are few, which is not known of the first; then with 2 ms between them, however they are sent.
      const most = (performance.now() - start) / 2 + writers + 6;
      expect(rings.length).toBeGreaterThan(0);
      expect(rings.length).toBeLessThanOrEqual(most);
      expect(sent).toBeLessThanOrEqual(most);
      await many.end();
    });

    test('a side connection that fails costs nothing but the ring', async () => {
      const outbox = createOutbox({ db: { ...db, side: { query: () => Promise.reject(new Error('no connection')) } } });
      for (const [, emit] of ways.slice(1)) await emit(outbox); // outbox.transaction has it sent along with COMMIT.
      expect(await heardSoFar()).toEqual([]);
    });
  });

  describe('the pace of NOTIFY, on a clock of our own', () => {
    let rungAt: number[];
    let underWay: number;
    let notifier: RelayNotifier;
    let start: number;

    beforeEach(async () => {
      rungAt = [];
      underWay = 0;
      await pool.query('select 1'); // What it takes to connect has timers too.
      vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout', 'performance'] });
      start = performance.now();
      const side = {
        query: async (text: string, values?: unknown[]) => {
          rungAt.push(performance.now() - start);
          underWay++;
          return pool.query(text, values).finally(() => underWay--);
        },
      };
      notifier = new RelayNotifier(side, 'postcommit', true);
    });
    afterEach(() => {
      vi.useRealTimers();
    });

    /** While time stands still, the server answers. */
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

    /** Answers when they were. */
    async function commit(count: number, ...everyMs: number[]): Promise<number[]> {
      const times: number[] = [];
      for (let n = 0; n < count; n++) {
        times.push(performance.now() - start);
        notifier.notifyAfterCommit();
        await answered();
        await pass(everyMs[n % everyMs.length] as number);
      }
      return times;
    }

    const gaps = (times: number[]) => times.slice(1).map((time, n) => time - (times[n] as number));

    test('each of a few is rung for at once', async () => {
      const spread = await commit(20, 4);
      expect(rungAt).toEqual(spread);
      await pass(20);
      const three = await commit(3, 1);
      expect(rungAt.slice(20)).toEqual(three);
    });

    test('when there are more, with 2 ms between them', async () => {
      const times = await commit(60, 1, 2);
      expect(rungAt.slice(0, 6)).toEqual(times.slice(0, 6));
      for (const gap of gaps(rungAt.slice(5))) expect(gap).toBeGreaterThanOrEqual(2);
      expect(rungAt.length).toBeLessThan(times.length);
      for (const time of times) expect(rungAt.some((at) => at >= time && at <= time + 2)).toBe(true);
    });

    test('in a stream every 50 ms, after a first pause of 5 ms; the last one is rung for', async () => {
      const times = await commit(400, 1);
      const before = rungAt.length;
      await pass(60);
      const pauses = gaps(rungAt);
      const first = pauses.findIndex((gap) => gap >= 5);
      expect(pauses.slice(0, first).every((gap) => gap <= 2)).toBe(true);
      expect(first).toBeLessThan(8);
      expect(pauses[first]).toBe(5);
      expect(new Set(pauses.slice(first + 1))).toEqual(new Set([50]));
      expect(rungAt.length).toBe(before + 1);
      expect(rungAt.at(-1)).toBeGreaterThanOrEqual(times.at(-1) as number);
      await pass(20);
      const [single] = await commit(1, 1);
      expect(rungAt.at(-1)).toBe(single);
    });

    test('of many that are sent together the first few are rung for at once, and the last one later', async () => {
      const sent = Array.from({ length: 50 }, () => notifier.notifySqlForCommit() !== undefined);
      expect(sent.filter(Boolean).length).toBeLessThanOrEqual(6);
      for (const along of sent) notifier.notifyAfterCommit(along);
      await pass(10);
      expect(rungAt.length).toBeGreaterThan(0);
      expect(rungAt.length).toBeLessThanOrEqual(3);
    });

    test('what is sent along with COMMIT counts like what is sent beside it', async () => {
      let along = 0;
      for (let n = 0; n < 400; n++) {
        const isAlong = notifier.notifySqlForCommit() !== undefined;
        if (isAlong) along++;
        notifier.notifyAfterCommit(isAlong);
        await answered();
        await pass(1);
      }
      expect(along).toBeGreaterThan(0);
      expect(along + rungAt.length).toBeLessThanOrEqual(400 / 50 + 10);
    });
  });

  describe('nothing of a request stays behind in its AsyncLocalStorage', () => {
    const storage = new AsyncLocalStorage<string>();

    test('neither in the notifier', async () => {
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
        await until(() => seen.length > before, { what: 'it rang' });
      }
      expect(seen.every((store) => store === undefined)).toBe(true);
    });

    test('nor in the handlers of a relay that was started in one', async () => {
      const stores: (string | undefined)[] = [];
      const relay = createRelay({
        connectionString: database.url,
        pollIntervalMs: 20,
        handlers: { rung: { note: () => void stores.push(storage.getStore()) } },
      });
      await storage.run('request', () => relay.start());
      const outbox = createOutbox({ db });
      // Woken from within another request, and by its own clock.
      await storage.run('another request', () => outbox.transaction((_tx, emit) => emit(event)));
      await until(() => stores.length >= 1, { what: 'it was delivered' });
      await database.query(`select postcommit.emit('rung', 'bell', '2', 'null')`);
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
