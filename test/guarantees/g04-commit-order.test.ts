import { setTimeout as sleep } from 'node:timers/promises';
import type pg from 'pg';
import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest';
import { createOutbox, fromPg, migrate, type Outbox, type OutboxEvent } from '../../src/index.ts';
import { createTestDatabase, type TestDatabase } from '../support/database.ts';
import { quietPool } from '../support/quiet-pool.ts';
import { seededRandom } from '../support/random.ts';
import { until, within } from '../support/wait.ts';

const event = (id: string, more: Partial<OutboxEvent> = {}): OutboxEvent => ({
  type: 'order.changed',
  aggregate: ['order', id],
  payload: null,
  ...more,
});

describe('G4 order per aggregate: seq follows commit order', () => {
  let database: TestDatabase;
  let pool: pg.Pool;
  let outbox: Outbox<pg.PoolClient>;
  const random = seededRandom();

  beforeAll(async () => {
    database = await createTestDatabase();
    pool = quietPool(database.url, { max: 60 });
    outbox = createOutbox<pg.PoolClient>({ db: fromPg(pool), notify: false });
    // Who commits when, told by the database and not by seq: at COMMIT, after everything else, the transaction counts up
    // its aggregate's row, and holds it until it has committed.
    await database.query(`
      create table aggregates (id text primary key, version bigint not null default 0);
      create table commits (event_seq bigint, aggregate text, version bigint);
      create function count_commit() returns trigger language plpgsql as $$
      declare counted bigint;
      begin
        insert into aggregates values (new.aggregate_id) on conflict do nothing;
        update aggregates set version = version + 1 where id = new.aggregate_id returning version into counted;
        insert into commits values (new.seq, new.aggregate_id, counted);
        return null;
      end $$;
      create constraint trigger count_commit after insert on postcommit.outbox_events
        deferrable initially deferred for each row when (new.event_type = 'order.counted')
        execute function count_commit()`);
  });

  afterEach(async () => {
    // Nothing of one test may keep the next one waiting.
    const [row] = await database.query(
      `select count(*)::integer as held from pg_locks l join pg_database d on d.oid = l.database
        where l.locktype = 'advisory' and d.datname = current_database()`,
    );
    expect(row).toEqual({ held: 0 });
  });

  afterAll(async () => {
    await pool.end();
    await database.close();
  });

  async function begin(): Promise<{ tx: pg.PoolClient; pid: number; end(how: 'commit' | 'rollback'): Promise<void> }> {
    const tx = await pool.connect();
    await tx.query('begin');
    const pid = (tx as unknown as { processID: number }).processID;
    return {
      tx,
      pid,
      async end(how) {
        await tx.query(how);
        tx.release();
      },
    };
  }

  async function locksOf(pid: number): Promise<{ all: number; advisory: number }> {
    const [row] = await database.query<{ all: number; advisory: number }>(
      `select count(*)::integer as "all", (count(*) filter (where locktype = 'advisory'))::integer as advisory
         from pg_locks where pid = $1`,
      [pid],
    );
    return row ?? { all: 0, advisory: 0 };
  }

  function waits(pid: number, forPid: number): Promise<boolean> {
    return until(
      async () =>
        (
          await database.query<{ yes: boolean }>('select $2::integer = any (pg_blocking_pids($1)) as yes', [
            pid,
            forPid,
          ])
        )[0]?.yes,
      { what: `${pid} waits for ${forPid}` },
    );
  }

  async function orderViolations(): Promise<number> {
    const [row] = await database.query<{ violations: number }>(
      `select count(*)::integer as violations from (
         select event_seq < lag(event_seq) over (partition by aggregate order by version) as wrong from commits) c
        where wrong`,
    );
    return row?.violations ?? -1;
  }

  /** 50 writers, 5 aggregates, every transaction takes its time between emit and COMMIT. */
  async function writeConcurrently(emitting: Outbox<pg.PoolClient>): Promise<void> {
    await database.query('truncate aggregates, commits');
    const counted = () => event(`hot-${random.integer(1, 5)}`, { type: 'order.counted' });
    const writer = async () => {
      for (let i = 0; i < 6; i++) {
        if (random.chance(0.4)) {
          await emitting.transaction(async (_tx, emit) => void (await emit(counted())), {
            pipeline: random.chance(0.5),
          });
          continue;
        }
        const { tx, end } = await begin();
        await emitting.emit(tx, counted());
        await sleep(random.integer(0, 3));
        if (random.chance(0.3)) await emitting.emit(tx, event('other', { key: null }));
        await end(random.chance(0.1) ? 'rollback' : 'commit');
      }
    };
    await Promise.all(Array.from({ length: 50 }, writer));
    const [row] = await database.query<{ count: number }>('select count(*)::integer as count from commits');
    expect(row?.count).toBeGreaterThan(200);
  }

  test('50 concurrent writers of 5 aggregates', async () => {
    await writeConcurrently(outbox);
    expect(await orderViolations()).toBe(0);
  });

  test('and the same without serialising shows that this would be seen', async () => {
    await writeConcurrently(createOutbox<pg.PoolClient>({ db: fromPg(pool), notify: false, serialise: false }));
    expect(await orderViolations()).toBeGreaterThan(0);
  });

  test('the same keys in another order do not deadlock', async () => {
    const keys = Array.from({ length: 30 }, (_, i) => `shared-${i}`);
    const writer = async () => {
      for (let i = 0; i < 15; i++) {
        const { tx, end } = await begin();
        await outbox.emit(
          tx,
          random.shuffle(keys).map((key) => event(key)),
        );
        await end('commit');
      }
    };
    await Promise.all(Array.from({ length: 8 }, writer));
  });

  describe('a transaction that emits for very many aggregates', () => {
    const many = Array.from({ length: 10_000 }, (_, i) => event(`many-${i}`));

    async function expectToExclude(
      emitMany: (tx: pg.PoolClient) => Promise<unknown>,
      id: string,
      advisoryMax: number,
    ): Promise<void> {
      const large = await begin();
      await emitMany(large.tx);
      expect((await locksOf(large.pid)).advisory).toBeLessThanOrEqual(advisoryMax);
      const small = await begin();
      const emitted = outbox.emit(small.tx, event(id, { type: 'order.last' }));
      await waits(small.pid, large.pid);
      await large.end('commit');
      await emitted;
      await small.end('commit');
      const rows = await database.query<{ event_type: string }>(
        'select event_type from postcommit.outbox_events where aggregate_id = $1 order by seq',
        [id],
      );
      expect(rows.map((row) => row.event_type)).toEqual(['order.changed', 'order.last']);
    }

    test('10,000 in one call: bounded locks, and others are kept out', async () => {
      await expectToExclude((tx) => outbox.emit(tx, many), 'many-7777', 16);
    });

    test('1,100 one by one: bounded locks, and others are kept out', async () => {
      await expectToExclude(
        async (tx) => {
          for (let i = 0; i < 1_100; i++) await outbox.emit(tx, event(`single-${i}`));
        },
        'single-1099',
        // The keys, the shared gate, and the sixteen.
        1_000 + 1 + 16,
      );
    });

    test('two of 300 other aggregates each, one by one, both commit', async () => {
      const [first, second] = [await begin(), await begin()];
      for (let i = 0; i < 300; i++) {
        const both = [outbox.emit(first.tx, event(`first-${i}`)), outbox.emit(second.tx, event(`second-${i}`))];
        await within(Promise.all(both), { what: 'neither waits for the other' });
      }
      await first.end('commit');
      await second.end('commit');
      const [row] = await database.query(
        `select count(*)::integer as count from postcommit.outbox_events
          where aggregate_id like 'first-%' or aggregate_id like 'second-%'`,
      );
      expect(row).toEqual({ count: 600 });
    });

    test('one that grows continues while another waits for it', async () => {
      const large = await begin();
      await outbox.emit(large.tx, many.slice(0, 256));
      const small = await begin();
      await outbox.emit(small.tx, event('other'));
      const emitted = outbox.emit(small.tx, event('many-0'));
      await waits(small.pid, large.pid);
      await within(outbox.emit(large.tx, event('one more')), { what: 'the large transaction continues' });
      const more = Array.from({ length: 300 }, (_, i) => event(`more-${i}`));
      await within(outbox.emit(large.tx, more), { what: 'also with very many in one call' });
      await large.end('commit');
      await emitted;
      await small.end('commit');
    });

    test('it waits for the transaction that came first', async () => {
      const small = await begin();
      await outbox.emit(small.tx, event('many-1', { type: 'order.first' }));
      const large = await begin();
      const emitted = outbox.emit(large.tx, many);
      await waits(large.pid, small.pid);
      // The small transaction continues, also with other keys, while the large one waits: no deadlock.
      const more = Array.from({ length: 40 }, (_, i) => event(`many-${100 + i}`, { type: 'order.first' }));
      for (const one of more) await within(outbox.emit(small.tx, one), { what: 'the small transaction continues' });
      await small.end('commit');
      await emitted;
      await large.end('commit');
      const rows = await database.query<{ event_type: string }>(
        `select event_type from postcommit.outbox_events where aggregate_id = 'many-139' order by seq desc limit 2`,
      );
      expect(rows.map((row) => row.event_type)).toEqual(['order.changed', 'order.first']);
    });

    describe('while a transaction that has emitted stays open', () => {
      async function withIdle(work: (idle: { pid: number }) => Promise<void>): Promise<void> {
        const idle = await begin();
        await outbox.emit(idle.tx, event('idle'));
        try {
          await work(idle);
        } finally {
          await idle.end('commit');
        }
      }

      test('257 other aggregates are emitted', async () => {
        await withIdle(async () => {
          const bulk = await begin();
          await bulk.tx.query(`set local lock_timeout = '7s'`);
          await within(outbox.emit(bulk.tx, many.slice(0, 257)), { what: 'the bulk call does not wait for it' });
          // The keys and the gate.
          expect((await locksOf(bulk.pid)).advisory).toBe(258);
          expect((await bulk.tx.query('show lock_timeout')).rows).toEqual([{ lock_timeout: '7s' }]);
          // Its aggregates are locked, and nothing else.
          const [same, other] = [await begin(), await begin()];
          await within(outbox.emit(other.tx, event('other')), { what: 'another aggregate is free' });
          const emitted = outbox.emit(same.tx, event('many-7', { type: 'order.last' }));
          await waits(same.pid, bulk.pid);
          await bulk.end('commit');
          await emitted;
          await same.end('commit');
          await other.end('commit');
        });
        const rows = await database.query<{ event_type: string }>(
          `select event_type from postcommit.outbox_events where aggregate_id = 'many-7' order by seq desc limit 2`,
        );
        expect(rows.map((row) => row.event_type)).toEqual(['order.last', 'order.changed']);
      });

      test('257 are emitted also when the gates would deadlock within deadlock_timeout', async () => {
        await database.query(`insert into aggregates values ('shared') on conflict do nothing`);
        const lockRow = `select from aggregates where id = 'shared' for update`;
        const bulk = await begin();
        await bulk.tx.query(lockRow);
        const other = await begin();
        await other.tx.query(`set local deadlock_timeout = '1min'`);
        await outbox.emit(other.tx, event('other'));
        const rowLocked = other.tx.query(lockRow);
        await waits(other.pid, bulk.pid);
        // Shorter than the 100 ms for the gates, so PostgreSQL finds that the two wait for each other.
        await bulk.tx.query(`set local deadlock_timeout = '10ms'`);
        await bulk.tx.query(`set local lock_timeout = '7s'`);
        const emitted = await Promise.allSettled([outbox.emit(bulk.tx, many.slice(0, 257))]);
        const [settings] = (await bulk.tx.query('show lock_timeout').catch(() => ({ rows: [] }))).rows;
        await bulk.end('commit');
        await rowLocked;
        await other.end('commit');
        expect(emitted).toEqual([{ status: 'fulfilled', value: expect.any(Array) }]);
        expect(settings).toEqual({ lock_timeout: '7s' });
      });

      test('1,001 in one call fail in the end, and no other emitter waits for that', async () => {
        await withIdle(async (idle) => {
          const bulk = await begin();
          let failed: unknown;
          const emitting = outbox.emit(bulk.tx, many.slice(0, 1_001)).catch((error) => {
            failed = error;
          });
          await waits(bulk.pid, idle.pid);
          let slowestMs = 0;
          let emitted = 0;
          while (failed === undefined) {
            const start = performance.now();
            const emit = outbox.transaction((_tx, emit) => emit(event(`free-${emitted}`)));
            await within(emit, { what: 'an unrelated aggregate is free' });
            slowestMs = Math.max(slowestMs, performance.now() - start);
            emitted++;
          }
          await emitting;
          expect(failed).toMatchObject({ code: 'POSTCOMMIT_E_BULK_EMIT_BLOCKED' });
          expect(emitted).toBeGreaterThan(10);
          // 100 ms, and what a busy machine adds.
          expect(slowestMs).toBeLessThan(1_500);
          await bulk.end('rollback');
        });
        const bulk = await begin();
        await outbox.emit(bulk.tx, many.slice(0, 1_001));
        expect((await locksOf(bulk.pid)).advisory).toBe(16);
        await bulk.end('commit');
      });

      test('1,001 in one call succeed when it ends meanwhile', async () => {
        const bulk = await begin();
        let emitted: Promise<unknown> = Promise.resolve();
        await withIdle(async (idle) => {
          emitted = outbox.emit(bulk.tx, many.slice(0, 1_001));
          await waits(bulk.pid, idle.pid);
        });
        await emitted;
        await bulk.end('commit');
      });
    });

    test('several that emit for 200 aggregates each, one by one, do not disturb each other', async () => {
      const batch = async (name: string) => {
        const { tx, pid, end } = await begin();
        for (let i = 0; i < 200; i++) await outbox.emit(tx, event(`${name}-${i}`));
        expect((await locksOf(pid)).all).toBeLessThan(600);
        await end('commit');
      };
      await Promise.all(['a', 'b', 'c', 'd'].map((name) => batch(`batch-${name}`)));
    });
  });

  describe('what is locked', () => {
    async function locksFor(emitting: Outbox<pg.PoolClient>, events: OutboxEvent[]): Promise<number> {
      const { tx, pid, end } = await begin();
      await emitting.emit(tx, events);
      const { advisory } = await locksOf(pid);
      await end('rollback');
      return advisory;
    }

    test('each key once, and the gate', async () => {
      expect(await locksFor(outbox, [event('1')])).toBe(2);
      expect(await locksFor(outbox, [event('1'), event('2'), event('1')])).toBe(3);
      const { tx, pid, end } = await begin();
      for (const id of ['1', '2', '1', '2']) await outbox.emit(tx, event(id));
      expect((await locksOf(pid)).advisory).toBe(3);
      await end('rollback');
    });

    test('nothing with serialise: false, and nothing for an event without order', async () => {
      const unserialised = createOutbox<pg.PoolClient>({ db: fromPg(pool), notify: false, serialise: false });
      expect(await locksFor(unserialised, [event('1'), event('2')])).toBe(0);
      expect(await locksFor(outbox, [event('1', { key: null }), event('2', { key: null })])).toBe(0);
    });

    test('what a savepoint locked is locked again after a rollback to it', async () => {
      const { tx, pid, end } = await begin();
      await tx.query('savepoint attempt');
      await outbox.emit(tx, event('1'));
      await tx.query('rollback to savepoint attempt');
      expect((await locksOf(pid)).advisory).toBe(0);
      await outbox.emit(tx, event('1'));
      expect((await locksOf(pid)).advisory).toBe(2);
      await end('rollback');
    });

    test('a key of one’s own orders across aggregates', async () => {
      const first = await begin();
      await outbox.emit(first.tx, event('1', { key: 'customer 5' }));
      const second = await begin();
      // The aggregate itself is free: it is not what the first event is ordered by.
      await within(outbox.emit(second.tx, event('1')), { what: 'the aggregate is free' });
      const emitted = outbox.emit(second.tx, event('2', { key: 'customer 5' }));
      await waits(second.pid, first.pid);
      await first.end('commit');
      await emitted;
      await second.end('commit');
    });

    test('an outbox in another schema does not wait', async () => {
      await migrate({ connectionString: database.url, schema: 'other' });
      const other = createOutbox<pg.PoolClient>({ db: fromPg(pool), notify: false, schema: 'other' });
      const first = await begin();
      await outbox.emit(first.tx, event('1'));
      const second = await begin();
      await within(other.emit(second.tx, event('1')), { what: 'the other outbox continues' });
      const all = Array.from({ length: 300 }, (_, i) => event(String(i)));
      await within(other.emit(second.tx, all), { what: 'also with very many keys' });
      await second.end('rollback');
      // And what is held in one schema is not taken for held in the other.
      await other.emit(first.tx, event('1'));
      expect((await locksOf(first.pid)).advisory).toBe(4);
      await first.end('rollback');
    });
  });
});
