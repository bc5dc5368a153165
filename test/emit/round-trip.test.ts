import { deepStrictEqual } from 'node:assert';
import { AsyncLocalStorage } from 'node:async_hooks';
import { randomUUID } from 'node:crypto';
import { type Context, context, createContextKey, propagation, ROOT_CONTEXT } from '@opentelemetry/api';
import fc from 'fast-check';
import type pg from 'pg';
import { afterAll, afterEach, beforeAll, describe, expect, test, vi } from 'vitest';
import {
  createOutbox,
  createRelay,
  type DeliveredEvent,
  fromPg,
  type Outbox,
  type OutboxEvent,
  type Relay,
} from '../../src/index.ts';
import { createTestDatabase, type TestDatabase } from '../support/database.ts';
import { quietPool } from '../support/quiet-pool.ts';
import { seededRandom } from '../support/random.ts';
import { until } from '../support/wait.ts';

describe('what goes in comes out', () => {
  let database: TestDatabase;
  let pool: pg.Pool;
  let outbox: Outbox<pg.PoolClient>;
  let relay: Relay;
  const delivered = new Map<string, DeliveredEvent>();

  beforeAll(async () => {
    database = await createTestDatabase();
    pool = quietPool(database.url);
    outbox = createOutbox<pg.PoolClient>({ db: fromPg(pool) });
    relay = createRelay({
      connectionString: database.url,
      handlers: { note: { collect: (event) => void delivered.set(event.id, event) } },
    });
    await relay.start();
  });
  afterAll(async () => {
    await relay.stop();
    await pool.end();
    await database.close();
  });

  const note = (payload: unknown, more: Partial<OutboxEvent> = {}): OutboxEvent => ({
    type: 'note',
    aggregate: ['note', '1'],
    payload,
    ...more,
  });

  async function emit(events: OutboxEvent[]): Promise<string[]> {
    return outbox.transaction((_tx, emit) => emit(events));
  }

  async function deliver(events: OutboxEvent[]): Promise<DeliveredEvent[]> {
    const ids = await emit(events);
    return until(
      () => {
        const found = ids.map((id) => delivered.get(id));
        return found.every((event) => event !== undefined) ? (found as DeliveredEvent[]) : undefined;
      },
      { what: `${ids.length} events were delivered` },
    );
  }

  // Any character but NUL, which PostgreSQL cannot store.
  const text = fc.string({ unit: 'binary', maxLength: 20 }).map((value) => value.replaceAll('\0', '0'));
  const json = fc.letrec<{ value: unknown }>((tie) => ({
    value: fc.oneof(
      { maxDepth: 6 },
      text,
      fc.constantFrom(null, true, false, 0, -1, 2 ** 53 - 1, -(2 ** 53), Number.MAX_VALUE, Number.MIN_VALUE, 1e21, 0.1),
      fc.double({ noNaN: true, noDefaultInfinity: true }),
      fc.integer().map((value) => `${value}${'0'.repeat(40)}`),
      fc.array(tie('value'), { maxLength: 5 }),
      fc.dictionary(text, tie('value'), { maxKeys: 5 }),
    ),
  })).value;

  test('every JSON value as payload, and every text as header', async () => {
    const { seed } = seededRandom();
    const event = fc.record({ payload: json, headers: fc.dictionary(text, text, { maxKeys: 4 }) });
    const property = fc.asyncProperty(fc.array(event, { minLength: 1, maxLength: 10 }), async (given) => {
      const received = await deliver(given.map(({ payload, headers }) => note(payload, { headers })));
      for (const [index, { payload, headers }] of given.entries()) {
        // What JSON itself makes of it: -0 becomes 0.
        deepStrictEqual(received[index]?.payload, JSON.parse(JSON.stringify(payload)));
        deepStrictEqual(JSON.parse(received[index]?.payloadJson ?? ''), received[index]?.payload);
        deepStrictEqual({ ...received[index]?.headers }, JSON.parse(JSON.stringify(headers)));
      }
    });
    await fc.assert(property, { seed, numRuns: 40 });
  });

  test('particular payloads', async () => {
    let deep: unknown = 'bottom';
    for (let i = 0; i < 1_000; i++) deep = i % 2 === 0 ? [deep] : { deep };
    const payloads = [
      null,
      false,
      0,
      '',
      'null',
      '[1]',
      [],
      {},
      [null, [null], { a: null }],
      deep,
      '12345678901234567890123456789012345678901234567890',
      { big: Number.MAX_SAFE_INTEGER, small: 5e-324, large: 1.7976931348623157e308 },
      'é \u{1F468}\u200D\u{1F469} \u202E \uFFFF \u0001 \u001F \\ \\u0000 " \' $1 $$ %s :"schema"',
      { z: 1, a: { y: 1, b: 2 }, '10': 1, '9': 2 },
      JSON.parse('{"__proto__": {"polluted": true}, "constructor": 1, "toString": 2}'),
      'x'.repeat(200_000), // Comes apart from its claim.
      new Date(0),
    ];
    const received = await deliver(payloads.map((payload) => note(payload)));
    for (const [index, payload] of payloads.entries()) {
      deepStrictEqual(received[index]?.payload, JSON.parse(JSON.stringify(payload)));
    }
  });

  test('ids of aggregates past 2^53, as the text they are', async () => {
    const ids = [9_007_199_254_740_993n, '9007199254740993', 2 ** 53 - 1, 0, -7, -(2n ** 200n), '007', ' x '];
    const received = await deliver(ids.map((id) => note(null, { aggregate: ['account', id] })));
    expect(received.map((event) => event.aggregate)).toEqual(ids.map((id) => ({ type: 'account', id: String(id) })));
  });

  test('everything else an event has', async () => {
    const id = '018F3B1E-7F57-7000-8000-00000000ABCD';
    const before = await databaseTime();
    const [event] = await deliver([note(1, { id, schemaVersion: 2_147_483_647, key: 'customer 5' })]);
    expect(event).toMatchObject({
      id: id.toLowerCase(),
      type: 'note',
      schemaVersion: 2_147_483_647,
      key: 'customer 5',
    });
    expect(event?.occurredAt.getTime()).toBeGreaterThanOrEqual(Math.floor(before));
    expect(event?.occurredAt.getTime()).toBeLessThanOrEqual(await databaseTime());
    expect((await deliver([note(1, { key: null })]))[0]?.key).toBeNull();
    expect((await deliver([note(1)]))[0]?.key).toBe('note:1');
  });

  test('a list keeps its order, and answers the ids in it', async () => {
    const events = Array.from({ length: 500 }, (_, index) => note(index));
    const ids = await emit(events);
    const rows = await database.query<{ id: string; payload: number }>(
      'select id, payload from postcommit.outbox_events where id = any ($1) order by seq',
      [ids],
    );
    expect(rows.map((row) => row.id)).toEqual(ids);
    expect(rows.map((row) => row.payload)).toEqual(events.map((event) => event.payload));
    expect([...ids].sort()).toEqual(ids);
  });

  describe('times', () => {
    afterEach(() => void vi.useRealTimers());

    async function availableAt(event: Partial<OutboxEvent>): Promise<{ inMs: number; at: Date | null }> {
      // An aggregate of its own: whatever comes after it in the same one would wait for it.
      const [id] = await emit([note(null, { ...event, aggregate: ['later', '1'] })]);
      const [row] = await database.query(
        `select e.available_at as at, q.available_at as queued,
                extract(epoch from e.available_at - e.created_at)::double precision * 1000 as "inMs"
           from postcommit.outbox_events e left join postcommit.outbox_queue q using (seq) where id = $1`,
        [id],
      );
      if (row.at !== null) expect(row.queued).toEqual(row.at);
      return row;
    }

    test('delayMs counts by the database’s clock, whatever this host believes', async () => {
      for (const year of [2001, 2101]) {
        vi.useFakeTimers({ toFake: ['Date'], now: new Date(year, 1, 1) });
        // With an id of its own: one of that time would make all later ids of this process later than it.
        const { inMs } = await availableAt({ id: randomUUID(), delayMs: 90_000.5 });
        // created_at is taken a moment later, in the same statement.
        expect(inMs).toBeLessThanOrEqual(90_000.5);
        expect(inMs).toBeGreaterThan(80_000);
        vi.useRealTimers();
      }
    });

    test('availableAt is that time, and nothing means at once', async () => {
      const at = new Date(Date.now() + 300 * 86_400_000);
      expect((await availableAt({ availableAt: at })).at).toEqual(at);
      expect((await availableAt({})).at).toBeNull();
    });

    test('a delayed event comes when it is due', async () => {
      const [id = ''] = await emit([note('later', { delayMs: 150 })]);
      const row = await until(
        async () =>
          (
            await database.query(
              `select d.delivered_at >= e.available_at as due from postcommit.outbox_events e
                 join postcommit.outbox_deliveries d on d.seqs @> e.seq where e.id = $1`,
              [id],
            )
          )[0],
        { what: 'it was delivered' },
      );
      expect(row).toEqual({ due: true });
    });
  });

  describe('the trace', () => {
    const spanKey = createContextKey('span');
    const storage = new AsyncLocalStorage<Context>();

    beforeAll(() => {
      context.setGlobalContextManager({
        active: () => storage.getStore() ?? ROOT_CONTEXT,
        with: (active, work, thisArg, ...args) => storage.run(active, () => work.call(thisArg as never, ...args)),
        bind: (_active, target) => target,
        enable() {
          return this;
        },
        disable() {
          return this;
        },
      });
      propagation.setGlobalPropagator({
        inject(active, carrier, setter) {
          const span = active.getValue(spanKey);
          if (span === 'broken') throw new Error('tracing is broken');
          if (span !== undefined) setter.set(carrier, 'traceparent', String(span));
        },
        extract: (active) => active,
        fields() {
          if (context.active().getValue(spanKey) === 'without fields') throw new Error('tracing is broken');
          return ['traceparent'];
        },
      });
    });
    afterAll(() => {
      context.disable();
      propagation.disable();
    });

    const inSpan = <T>(span: string, work: () => Promise<T>) =>
      context.with(ROOT_CONTEXT.setValue(spanKey, span), work);
    const traceparent = '00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01';

    test('the active context travels as traceparent, beside the caller’s headers', async () => {
      const [event] = await inSpan(traceparent, () => deliver([note(1, { headers: { tenant: 'a' } })]));
      expect({ ...event?.headers }).toEqual({ traceparent, tenant: 'a' });
    });

    test('a header of the caller’s comes first, and without a context there is none', async () => {
      const [own] = await inSpan(traceparent, () => deliver([note(1, { headers: { traceparent: 'mine' } })]));
      expect({ ...own?.headers }).toEqual({ traceparent: 'mine' });
      const [other] = await inSpan(traceparent, () => deliver([note(1, { headers: { Traceparent: 'mine' } })]));
      expect({ ...other?.headers }).toEqual({ Traceparent: 'mine' });
      expect({ ...(await deliver([note(1)]))[0]?.headers }).toEqual({});
    });

    test.each(['broken', 'without fields', 'a\0b'])(
      'tracing that is %j costs the trace and not the event',
      async (span) => {
        const [event] = await inSpan(span, () => deliver([note(1, { headers: { tenant: 'a' } })]));
        expect({ ...event?.headers }).toEqual({ tenant: 'a' });
      },
    );
  });

  async function databaseTime(): Promise<number> {
    const [row] = await database.query('select extract(epoch from clock_timestamp())::double precision * 1000 as ms');
    return row.ms;
  }
});
