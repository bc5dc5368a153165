import { AsyncLocalStorage } from 'node:async_hooks';
import pg from 'pg';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { doorbellChannel } from '../../src/database/identifier.ts';
import { createOutbox, createRelay, fromPg, type Outbox, type OutboxDatabase, type Relay } from '../../src/index.ts';
import { hearInProcess } from '../../src/outbox/ring.ts';
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
      const unhear = hearInProcess('postcommit', () => rings++);
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
      await until(() => heard.at(-1)?.payload === 'last', { what: 'the last notification came' });
      return heard.splice(0).slice(0, -1);
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
      const { side: ownSide } = db; // The last ring comes when the next test has a pool of its own already.
      let sent = 0;
      const side = {
        query: async (text: string, values?: unknown[]) => {
          sent++;
          return ownSide.query(text, values);
        },
      };
      const outbox = createOutbox({ db: { ...db, side } });
      const start = performance.now();
      const writer = async () => {
        for (let i = 0; i < 100; i++) await outbox.transaction((_tx, emit) => emit({ ...event, key: null }));
      };
      await Promise.all([writer(), writer()]);
      expect(sent).toBeGreaterThan(0);
      // One each 5 ms at most, and the first at once.
      expect(sent).toBeLessThanOrEqual((performance.now() - start) / 5 + 2);
    });

    test('a side connection that fails costs nothing but the ring', async () => {
      const outbox = createOutbox({ db: { ...db, side: { query: () => Promise.reject(new Error('no connection')) } } });
      for (const [, emit] of ways.slice(1)) await emit(outbox); // outbox.transaction has it sent along with COMMIT.
      expect(await heardSoFar()).toEqual([]);
    });
  });

  describe('nothing of a request stays behind in its AsyncLocalStorage', () => {
    const storage = new AsyncLocalStorage<string>();

    test('neither in the ringer', async () => {
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
