import { setTimeout as sleep } from 'node:timers/promises';
import type { StandardSchemaV1 } from '@standard-schema/spec';
import type pg from 'pg';
import { describe, expect, onTestFinished, test } from 'vitest';
import type { Executor, Outbox, OutboxDatabase } from '../../src/index.ts';
import { createInbox, createOutbox, defineEvents, fromPg } from '../../src/index.ts';
import { createTestDatabase, type TestDatabase } from '../support/database.ts';
import { createOrders, insertOrder, orderCreated } from '../support/orders.ts';
import { postgresVersions, serverUrlOf } from '../support/postgres-versions.ts';
import { quietPool } from '../support/quiet-pool.ts';
import { within } from '../support/wait.ts';

type PgOutbox = Outbox<pg.PoolClient>;
type Emitting = (outbox: PgOutbox, client: pg.PoolClient, order: string) => Promise<unknown>[];

const later = <T>(work: () => Promise<T>): Promise<T> => Promise.resolve().then(work);

const ways: Record<string, Emitting> = {
  'emit of one event': (outbox, client, order) => [outbox.emit(client, orderCreated(order))],
  'emit of several events': (outbox, client, order) => [
    outbox.emit(client, [orderCreated(order), { ...orderCreated(order), aggregate: ['line', order] }]),
  ],
  'two calls of emit': (outbox, client, order) => [
    outbox.emit(client, orderCreated(order)),
    outbox.emit(client, { ...orderCreated(order), aggregate: ['line', order] }),
  ],
  emitOnce: (outbox, client, order) => [outbox.emitOnce(client, { ...orderCreated(order), id: crypto.randomUUID() })],
  'three calls of emit after the next statement is sent': (outbox, client, order) => [
    later(() => outbox.emit(client, orderCreated(order))),
    later(() => outbox.emit(client, { ...orderCreated(order), aggregate: ['line', order] })),
    later(() => outbox.emit(client, [orderCreated(order), orderCreated(order)])),
  ],
  'emitOnce after the next statement is sent': (outbox, client, order) => [
    later(() => outbox.emitOnce(client, { ...orderCreated(order), id: crypto.randomUUID() })),
  ],
};

/** Of some events it takes longer than the rest of the transaction. */
const slowSchema: StandardSchemaV1<{ id: string }> = {
  '~standard': {
    version: 1,
    vendor: 'test',
    validate: async (value) => {
      const event = value as { id: string };
      if (Number(event.id) % 5 < 2) await sleep(5);
      return { value: event };
    },
  },
};
const slowEvents = defineEvents({ 'order.created': { schema: slowSchema } });

/** Pools and outboxes in which a call may be sent later than it was made. */
const kinds: Record<string, { pool?: object; events?: typeof slowEvents }> = {
  'a pool': {},
  'a pool that pipelines': { pool: { pipeline: true } },
  'asynchronous schemas': { events: slowEvents },
};

/**
 * The application forgets to await emit, and the transaction ends while it is on its way. The connection then goes to another request
 * that waits for it: its transaction must neither get the event nor fail.
 */
describe.each(postgresVersions)('G1 with an emit that is not awaited, on PostgreSQL %i', (version) => {
  const each = Object.keys(kinds).flatMap((kind) => Object.keys(ways).map((way) => [kind, way] as const));
  test.each(each)('%s, %s: events exist exactly with their own transaction', async (kind, way) => {
    const emitting = ways[way] as Emitting;
    const { pool: poolOptions, events } = kinds[kind] ?? {};
    const database = await createTestDatabase({ serverUrl: serverUrlOf(version) });
    await createOrders(database);
    const pool = quietPool(database.url, { max: 4, ...poolOptions });
    onTestFinished(async () => {
      await pool.end();
      await database.close();
    });
    const db = fromPg(pool);
    const outbox = (
      events ? createOutbox({ db, notify: false, events }) : createOutbox({ db, notify: false })
    ) as PgOutbox;
    const emitted: Promise<{ order: string; error: unknown }>[] = [];
    const request = async (order: string, { fails, lookups }: { fails: boolean; lookups: number }) => {
      const client = await pool.connect();
      try {
        await client.query('begin');
        await client.query(insertOrder, [order]);
        for (const call of emitting(outbox, client, order)) {
          emitted.push(
            call.then(
              () => ({ order, error: undefined }),
              (error: unknown) => ({ order, error }),
            ),
          );
        }
        // With none, COMMIT or ROLLBACK is on its way before the event. Otherwise the event comes before it.
        for (let n = 0; n < lookups; n++) await client.query('select 1');
        if (fails) throw new Error('the business fails');
        await client.query('commit');
      } catch (error) {
        await client.query('rollback');
        if ((error as Error).message !== 'the business fails') throw error;
      } finally {
        client.release();
      }
    };
    // No request fails for what another one has forgotten.
    await Promise.all(
      Array.from({ length: 120 }, (_, n) => request(String(n), { fails: n % 2 === 1, lookups: n % 3 })),
    );
    const results = await Promise.all(emitted);
    for (const { error } of results) {
      if (error !== undefined) expect(error).toMatchObject({ code: 'POSTCOMMIT_E_NOT_A_TRANSACTION' });
    }
    expect(await eventsWithoutOrder(database)).toEqual([]);
    // A call that succeeded has written its event, if its transaction committed; one that was refused has not.
    const known = new Set((await database.query('select aggregate_id from postcommit.outbox_events')).map(idOf));
    expect(known.size).toBeGreaterThan(0);
    // A call that sends at once always comes before COMMIT.
    if (way.includes('next statement')) expect(results.some(({ error }) => error !== undefined)).toBe(true);
    for (const { order, error } of results) {
      const committed = Number(order) % 2 === 0;
      if (error === undefined && committed) expect(known).toContain(order);
    }
  });

  test('inbox.once that is not awaited: a record exists exactly with its own transaction', async () => {
    const database = await createTestDatabase({ serverUrl: serverUrlOf(version) });
    await createOrders(database);
    const pool = quietPool(database.url, { max: 4 });
    onTestFinished(async () => {
      await pool.end();
      await database.close();
    });
    const inbox = createInbox({ db: fromPg(pool) });
    const recorded: Promise<unknown>[] = [];
    const request = async (n: number) => {
      const eventId = crypto.randomUUID();
      const client = await pool.connect();
      try {
        await client.query('begin');
        await client.query(insertOrder, [eventId]);
        recorded.push(inbox.once(client, { consumer: 'late', eventId }, () => {}).catch((error: unknown) => error));
        await client.query(n % 2 === 1 ? 'rollback' : 'commit');
      } finally {
        client.release();
      }
    };
    await Promise.all(Array.from({ length: 120 }, (_, n) => request(n)));
    for (const result of await Promise.all(recorded)) {
      if (result instanceof Error) expect(result).toMatchObject({ code: 'POSTCOMMIT_E_NOT_A_TRANSACTION' });
    }
    const foreign = await database.query(
      'select event_id from postcommit.processed_events where event_id::text not in (select id from orders)',
    );
    expect(foreign).toEqual([]);
    expect(await database.query('select from postcommit.processed_events')).not.toEqual([]);
  });

  test('a check that never ends delays no emit of the next transaction on the connection', async () => {
    const database = await createTestDatabase({ serverUrl: serverUrlOf(version) });
    await createOrders(database);
    const pool = quietPool(database.url, { max: 1 });
    onTestFinished(async () => {
      await pool.end();
      await database.close();
    });
    const schema: StandardSchemaV1<{ id: string }> = {
      '~standard': {
        version: 1,
        vendor: 'test',
        validate: async (value) => {
          const event = value as { id: string };
          if (event.id === 'never') await new Promise(() => {});
          return { value: event };
        },
      },
    };
    const events = defineEvents({ 'order.created': { schema } });
    const outbox = createOutbox({ db: fromPg(pool), notify: false, events });
    const first = await pool.connect();
    await first.query('begin');
    void outbox.emit(first, orderCreated('never') as never);
    await first.query('rollback');
    first.release();
    for (const order of ['1', '2']) {
      const client = await pool.connect();
      await client.query('begin');
      await client.query(insertOrder, [order]);
      await within(outbox.emit(client, orderCreated(order) as never), { what: 'the event is written' });
      await client.query('commit');
      client.release();
    }
    expect((await database.query('select aggregate_id from postcommit.outbox_events')).map(idOf)).toEqual(['1', '2']);
    expect(await eventsWithoutOrder(database)).toEqual([]);
  });

  test('an event of a transaction that failed is not written by the retry on the same connection', async () => {
    const database = await createTestDatabase({ serverUrl: serverUrlOf(version) });
    await createOrders(database);
    const pool = quietPool(database.url, { max: 1 });
    onTestFinished(async () => {
      await pool.end();
      await database.close();
    });
    const outbox = createOutbox({ db: fromPg(pool), notify: false });
    const client = await pool.connect();
    await client.query('begin');
    // Three statements in flight: nothing tells the client whether the transaction is open.
    const lookup = client.query('select 1');
    const late = outbox.emit(client, orderCreated('first')).catch((error: unknown) => error);
    const later = outbox.emit(client, orderCreated('second')).catch((error: unknown) => error);
    const rolledBack = client.query('rollback');
    await Promise.all([lookup, rolledBack]);
    await client.query('begin');
    await client.query(insertOrder, ['retried']);
    await Promise.all([late, later]);
    await client.query('commit');
    client.release();
    expect(await database.query('select aggregate_id from postcommit.outbox_events')).toEqual([]);
    expect(await database.query('select id from orders')).toEqual([{ id: 'retried' }]);
  });

  test.each(['emit', 'emitOnce'] as const)(
    '%s that waits behind another call of outbox.transaction is not written after its rollback',
    async (method) => {
      const { database, pool } = await oneConnection(version);
      let passed = () => {};
      const passing = new Promise<void>((resolve) => {
        passed = resolve;
      });
      const schema: StandardSchemaV1<{ id: string }> = {
        '~standard': {
          version: 1,
          vendor: 'test',
          validate: (value) => {
            const event = { value: value as { id: string } };
            return event.value.id === 'slow' ? passing.then(() => event) : event;
          },
        },
      };
      const events = defineEvents({ 'order.created': { schema } });
      const outbox = createOutbox({ db: fromPg(pool), notify: false, events });
      const calls: Promise<unknown>[] = [];
      const failing = outbox.transaction(async (tx) => {
        for (const id of ['slow', 'queued']) {
          const event = { ...orderCreated(id), id: crypto.randomUUID() } as never;
          calls.push(outbox[method](tx, event).catch((error: unknown) => error));
        }
        throw new Error('the business fails');
      });
      await expect(failing).rejects.toThrow('the business fails');
      const client = await pool.connect();
      await client.query('begin');
      await client.query(insertOrder, ['next']);
      passed();
      const refused = { code: 'POSTCOMMIT_E_NOT_A_TRANSACTION' };
      expect(await Promise.all(calls)).toMatchObject([refused, refused]);
      await client.query('commit');
      client.release();
      expect(await database.query('select aggregate_id from postcommit.outbox_events')).toEqual([]);
      expect(await database.query('select id from orders')).toEqual([{ id: 'next' }]);
    },
  );

  test('an emit that begins while outbox.transaction writes its last events is refused, and they are committed', async () => {
    const { database, pool } = await oneConnection(version);
    let late: Promise<unknown> | undefined;
    // As most clients do, it reports a COMMIT that was answered with ROLLBACK as a commit.
    const db: OutboxDatabase<pg.PoolClient> = {
      side: pool as Executor,
      inTransaction: (client) => ({
        query: (text, values) => {
          const answer = client.query(text, values as unknown[]);
          if (text.includes('.emit_one(')) late ??= outbox.emit(client, orderCreated('late')).catch((error) => error);
          return answer;
        },
      }),
      transaction: async (work) => {
        const client = await pool.connect();
        try {
          await client.query('begin');
          const result = await work(client);
          await client.query('commit');
          return result;
        } finally {
          client.release();
        }
      },
    };
    const outbox = createOutbox({ db, notify: false });
    await outbox.transaction(async (tx, emit) => {
      await tx.query(insertOrder, ['1']);
      await emit(orderCreated('1'));
    });
    expect(await late).toMatchObject({ code: 'POSTCOMMIT_E_NOT_A_TRANSACTION' });
    expect(await database.query('select aggregate_id from postcommit.outbox_events')).toEqual([{ aggregate_id: '1' }]);
    expect(await database.query('select id from orders')).toEqual([{ id: '1' }]);
  });

  test.each([
    ['pg knows that it is open', false],
    ['a statement is in flight', true],
  ])(
    'inbox.once of a transaction that was given up does not fail the next one on the connection: %s',
    async (_, isBusy) => {
      const { database, pool } = await oneConnection(version);
      const inbox = createInbox({ db: fromPg(pool) });
      let fail = (_error: Error) => {};
      const first = await pool.connect();
      await first.query('begin');
      const lookup = isBusy ? first.query('select 1') : undefined;
      let begun = () => {};
      const working = new Promise<void>((resolve) => {
        begun = resolve;
      });
      const once = inbox.once(first, { consumer: 'late', eventId: crypto.randomUUID() }, () => {
        begun();
        return new Promise<void>((_, reject) => {
          fail = reject;
        });
      });
      await lookup;
      await working;
      await first.query('rollback');
      first.release();
      const client = await pool.connect();
      await client.query('begin');
      await client.query(insertOrder, ['next']);
      fail(new Error('too late'));
      await expect(once).rejects.toThrow('too late');
      await client.query('commit');
      client.release();
      expect(await database.query('select id from orders')).toEqual([{ id: 'next' }]);
      expect(await database.query('select from postcommit.processed_events')).toEqual([]);
    },
  );
});

/** The second transaction gets the connection of the first. */
async function oneConnection(version: (typeof postgresVersions)[number]) {
  const database = await createTestDatabase({ serverUrl: serverUrlOf(version) });
  await createOrders(database);
  const pool = quietPool(database.url, { max: 1 });
  onTestFinished(async () => {
    await pool.end();
    await database.close();
  });
  return { database, pool };
}

const idOf = (row: Record<string, unknown>) => row.aggregate_id as string;

function eventsWithoutOrder(database: TestDatabase): Promise<Record<string, unknown>[]> {
  return database.query(
    `select e.aggregate_id from postcommit.outbox_events e
      where not exists (select from orders o where o.id = e.aggregate_id)`,
  );
}
