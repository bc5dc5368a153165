import { randomUUID } from 'node:crypto';
import type pg from 'pg';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { createOutbox, createRelay, type DeliveredEvent, fromPg, migrate, type Relay } from '../../src/index.ts';
import { createTestDatabase, type TestDatabase } from '../support/database.ts';
import { quietPool } from '../support/quiet-pool.ts';
import { until } from '../support/wait.ts';

/** What a relay brought, by event id. */
function collector(
  connectionString: string,
  schema = 'postcommit',
): { relay: Relay; got: Map<string, DeliveredEvent> } {
  const got = new Map<string, DeliveredEvent>();
  const relay = createRelay({
    connectionString,
    schema,
    pollIntervalMs: 20,
    handlers: { 'order.created': { collect: (event) => void got.set(event.id, event) } },
  });
  return { relay, got };
}

describe('emit from any language', () => {
  let database: TestDatabase;
  let relay: Relay;
  let got: Map<string, DeliveredEvent>;

  beforeAll(async () => {
    database = await createTestDatabase();
    ({ relay, got } = collector(database.url));
    await relay.start();
  });
  afterAll(async () => {
    await relay.stop();
    await database.close();
  });

  const arrived = (id: string) => until(() => got.get(id), { what: `event ${id} was delivered` });

  test('a plain INSERT of what is needed', async () => {
    const [row] = await database.query(
      `insert into postcommit.outbox_events (aggregate_type, aggregate_id, event_type, payload)
       values ('order', '42', 'order.created', '{"total": 9}') returning id`,
    );
    const event = await arrived(row.id);
    expect(event.payload).toEqual({ total: 9 });
    expect(event).toMatchObject({ schemaVersion: 1, key: 'order:42', aggregate: { type: 'order', id: '42' } });
    expect(event.headers).toEqual({});
  });

  test('a plain INSERT of everything, several rows at once', async () => {
    const ids = [randomUUID(), randomUUID()];
    await database.query(
      `insert into postcommit.outbox_events
         (id, aggregate_type, aggregate_id, event_type, schema_version, ordering_key, payload, headers, available_at)
       select id, 'order', '43', 'order.created', 7, 'customer 5', 'null', '{"tenant": "a"}', clock_timestamp()
         from unnest($1::uuid[]) id`,
      [ids],
    );
    for (const id of ids) {
      const event = await arrived(id);
      expect(event).toMatchObject({ schemaVersion: 7, key: 'customer 5', payload: null });
      expect(event.headers).toEqual({ tenant: 'a' });
    }
  });

  test('INSERT … SELECT fills the queue as well', async () => {
    await database.query(
      `insert into postcommit.outbox_events (aggregate_type, aggregate_id, event_type, payload)
       select 'bulk', n::text, 'no.handler', to_jsonb(n) from generate_series(1, 1000) n`,
    );
    const [row] = await database.query(
      `select count(*)::integer as queued from postcommit.outbox_queue join postcommit.outbox_events using (seq)
        where aggregate_type = 'bulk' and key = postcommit.key_hash('bulk', aggregate_id, null)`,
    );
    expect(row).toEqual({ queued: 1_000 });
    await database.query(`delete from postcommit.outbox_queue using postcommit.outbox_events e
      where e.seq = outbox_queue.seq and e.aggregate_type = 'bulk'`);
  });

  test('select postcommit.emit(…) with and without its options', async () => {
    const [short] = await database.query(
      `select postcommit.emit('order.created', 'order', '44', '{"total": 9}') as id`,
    );
    expect((await arrived(short.id)).payload).toEqual({ total: 9 });

    const id = randomUUID();
    const [long] = await database.query(
      `select postcommit.emit(event_type => 'order.created', aggregate_type => 'order', aggregate_id => '44',
         payload => '[1]', headers => '{"a": "b"}', id => $1, schema_version => 2, ordering_key => '',
         available_at => clock_timestamp()) as id`,
      [id],
    );
    expect(long).toEqual({ id });
    const event = await arrived(id);
    expect(event).toMatchObject({ payload: [1], schemaVersion: 2, key: null });
    expect(event.headers).toEqual({ a: 'b' });
  });

  test('select postcommit.emit(…) of a JSON list', async () => {
    const ids = [randomUUID(), randomUUID()];
    const events = ids.map((id, index) => ({
      id,
      event_type: 'order.created',
      aggregate_type: 'order',
      aggregate_id: '45',
      payload: index,
    }));
    await database.query('select postcommit.emit($1::jsonb)', [JSON.stringify(events)]);
    for (const [index, id] of ids.entries()) expect((await arrived(id)).payload).toBe(index);
  });

  test('the function takes the lock of the key, a plain INSERT does not', async () => {
    const client = await database.pool.connect();
    const locks = async () =>
      (
        await client.query(
          `select count(*)::integer as n from pg_locks where pid = pg_backend_pid() and locktype = 'advisory'`,
        )
      ).rows[0].n;
    await client.query('begin');
    await client.query(
      `insert into postcommit.outbox_events (aggregate_type, aggregate_id, event_type, payload) values ('a', '1', 'x', '1')`,
    );
    expect(await locks()).toBe(0);
    await client.query(`select postcommit.emit('x', 'a', '1', '1')`);
    expect(await locks()).toBe(2);
    await client.query('rollback');
    client.release();
  });

  test.each([
    [
      'more than 128 headers',
      `select postcommit.emit('x', 'a', '1', '1', headers => (select jsonb_object_agg(n, '') from generate_series(1, 129) n))`,
      '23514',
    ],
    ['headers that are not an object', `select postcommit.emit('x', 'a', '1', '1', headers => '[]')`, '23514'],
    ['schema version 0', `select postcommit.emit('x', 'a', '1', '1', schema_version => 0)`, '23514'],
    ['no aggregate', `select postcommit.emit('x', null, '1', '1')`, '23502'],
    [
      'no payload',
      `insert into postcommit.outbox_events (aggregate_type, aggregate_id, event_type) values ('a', '1', 'x')`,
      '23502',
    ],
    [
      'a seq of one’s own',
      `insert into postcommit.outbox_events (seq, aggregate_type, aggregate_id, event_type, payload) values (1, 'a', '1', 'x', '1')`,
      '428C9',
    ],
  ])('refused by the table itself: %s', async (_name, statement, code) => {
    await expect(database.query(statement)).rejects.toMatchObject({ code });
  });
});

describe('a role that may only emit', () => {
  let database: TestDatabase;
  let url: string;
  const role = `emitter_${randomUUID().slice(0, 8)}`;

  beforeAll(async () => {
    database = await createTestDatabase();
    await database.query(`create role ${role} login password 'secret'`);
    await database.query(`grant usage on schema postcommit to ${role}`);
    await database.query(`grant insert on postcommit.outbox_events to ${role}`);
    const address = new URL(database.url);
    address.username = role;
    address.password = 'secret';
    url = address.href;
  });
  afterAll(async () => {
    await database.query(`drop owned by ${role}`);
    await database.query(`drop role ${role}`);
    await database.close();
  });

  test('emits by every way, and its events are queued', async () => {
    const pool = quietPool(url, { max: 2 });
    await pool.query(
      `insert into postcommit.outbox_events (aggregate_type, aggregate_id, event_type, payload) values ('a', '1', 'x', '1')`,
    );
    await pool.query(`select postcommit.emit('x', 'a', '1', '1')`);
    const outbox = createOutbox({ db: fromPg(pool) });
    await outbox.transaction(async (_tx, emit) => {
      await emit({ type: 'x', aggregate: ['a', '1'], payload: 1 });
      await emit(Array.from({ length: 300 }, (_, i) => ({ type: 'x', aggregate: ['a', i] as const, payload: 1 })));
    });
    await pool.end();
    const [row] = await database.query(
      `select (select count(*)::integer from postcommit.outbox_events) as events,
              (select count(*)::integer from postcommit.outbox_queue) as queued`,
    );
    expect(row).toEqual({ events: 303, queued: 303 });
  });

  test('and can do nothing else', async () => {
    const pool = quietPool(url, { max: 1 });
    const tables = await database.query<{ name: string; kind: string }>(
      `select relname as name, relkind as kind from pg_class
        where relnamespace = 'postcommit'::regnamespace and relkind in ('r', 'v')`,
    );
    expect(tables.length).toBeGreaterThan(8);
    for (const { name, kind } of tables) {
      const changes = [`delete from postcommit.${name}`, `truncate postcommit.${name}`];
      if (name === 'outbox_events') changes.push(`update postcommit.${name} set payload = '1'`);
      else changes.push(`insert into postcommit.${name} default values`);
      for (const statement of [`select * from postcommit.${name}`, ...(kind === 'r' ? changes : [])]) {
        await expect(pool.query(statement), statement).rejects.toMatchObject({ code: '42501' });
      }
    }
    await expect(pool.query('create table postcommit.mine ()')).rejects.toMatchObject({ code: '42501' });
    await expect(pool.query('select postcommit.enqueue()')).rejects.toMatchObject({ code: '42501' });
    await pool.end();
  });

  test('without the right to insert, the error says what to grant', async () => {
    await database.query(`revoke insert on postcommit.outbox_events from ${role}`);
    const pool = quietPool(url, { max: 1 });
    const emitted = createOutbox({ db: fromPg(pool) }).transaction((_tx, emit) =>
      emit({ type: 'x', aggregate: ['a', '1'], payload: 1 }),
    );
    await expect(emitted).rejects.toMatchObject({ code: 'POSTCOMMIT_E_PERMISSION_DENIED' });
    await expect(emitted).rejects.toThrow(/postcommit grants/);
    await pool.end();
  });
});

describe('two outboxes in one database', () => {
  // 63 bytes, with everything that a careless quoting would trip over.
  const awkward = `Wei"rd $& $$ :"schema" '; drop schema postcommit; --`.padEnd(61, 'x').concat('é');

  test('do not see each other’s events, whatever their names', async () => {
    expect(Buffer.byteLength(awkward)).toBe(63);
    const database = await createTestDatabase();
    const pool = quietPool(database.url, { max: 4 });
    await migrate({ connectionString: database.url, schema: awkward });
    const db = fromPg(pool);
    const outboxes = ['postcommit', awkward].map((schema) => ({ schema, outbox: createOutbox({ db, schema }) }));
    const relays = outboxes.map(({ schema }) => collector(database.url, schema));
    await Promise.all(relays.map(({ relay }) => relay.start()));
    try {
      const client = await pool.connect();
      await client.query('begin');
      const ids: string[] = [];
      // In one transaction of one client: both are woken by it.
      for (const { outbox } of outboxes) {
        ids.push(
          await outbox.emit(client, {
            type: 'order.created',
            aggregate: ['order', '1'],
            payload: outbox === outboxes[0]?.outbox,
          }),
        );
      }
      await client.query('commit');
      client.release();
      for (const [index, { got }] of relays.entries()) {
        await until(() => got.has(ids[index] ?? ''), { what: 'each relay has its event' });
      }
      await Promise.all(relays.map(({ relay }) => relay.stop()));
      for (const [index, { got }] of relays.entries()) expect([...got.keys()]).toEqual([ids[index]]);
    } finally {
      await Promise.all(relays.map(({ relay }) => relay.stop()));
      await pool.end();
      await database.close();
    }
  });
});

describe('plain INSERTs of concurrent transactions for one aggregate', () => {
  async function deliver(database: TestDatabase): Promise<unknown[]> {
    const { relay, got } = collector(database.url);
    await relay.runOnce();
    return [...got.values()].map(({ payload }) => payload);
  }

  async function insertBoth(database: TestDatabase): Promise<{ first: pg.PoolClient; second: pg.PoolClient }> {
    const [first, second] = [await database.pool.connect(), await database.pool.connect()];
    for (const [client, name] of [
      [first, '"first"'],
      [second, '"second"'],
    ] as const) {
      await client.query('begin');
      await client.query(
        `insert into postcommit.outbox_events (aggregate_type, aggregate_id, event_type, payload)
         values ('order', '42', 'order.created', $1)`,
        [name],
      );
    }
    return { first, second };
  }

  async function commit(client: pg.PoolClient): Promise<void> {
    await client.query('commit');
    client.release();
  }

  test('are delivered by seq if both are committed, though the higher one committed first', async () => {
    const database = await createTestDatabase();
    try {
      const { first, second } = await insertBoth(database);
      await commit(second);
      await commit(first);
      expect(await deliver(database)).toEqual(['first', 'second']);
    } finally {
      await database.close();
    }
  });

  test('and a lower seq that commits later is delivered later', async () => {
    const database = await createTestDatabase();
    try {
      const { first, second } = await insertBoth(database);
      await commit(second);
      expect(await deliver(database)).toEqual(['second']);
      await commit(first);
      expect(await deliver(database)).toEqual(['first']);
    } finally {
      await database.close();
    }
  });
});
