import { randomBytes, randomUUID } from 'node:crypto';
import pg from 'pg';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, onTestFinished, test } from 'vitest';
import type { EmbeddedPostgres } from '../../src/embedded/postgres-server.ts';
import { createOutbox, createRelay, type Finding, fromPg, migrate, type Outbox, type Relay } from '../../src/index.ts';
import { createTestDatabase, type TestDatabase } from '../support/database.ts';
import { startTestPostgres } from '../support/postgres-server.ts';
import { quietPool } from '../support/quiet-pool.ts';
import { recordServer } from '../support/servers-used.ts';
import { until } from '../support/wait.ts';

const salt = `hashtextextended('postcommit', 0)`;
const gates = `1886352483 + (${salt} & 1048575)::integer`;

/** The advisory locks of the outbox, as any session can take them. */
const lockOf = {
  prune: `hashtextextended('postcommit.prune.postcommit', 42)`,
  partitions: `hashtextextended('postcommit.partitions', ${salt})`,
  unshelve: `hashtextextended('postcommit.unshelve', ${salt})`,
  queue: (name: string) => `postcommit.queue_lock('${name}')`,
  migrate: `hashtextextended('postcommit.migrate.postcommit', 42)`,
  key: (id: string) => `postcommit.key_hash('thing', '${id}', null) # ${salt}`,
  relay: (token: string) => `1886352483 + 2097152 + (${salt} & 1048575)::integer, hashint8(${token})`,
  id: (id: string) => `1886352483 + 1048576 + (${salt} & 1048575)::integer, hashtext('${id}')`,
};

describe.each([18, 14] as const)('a foreign session that holds an advisory lock, on PostgreSQL %i', (version) => {
  let server: EmbeddedPostgres;
  let db: TestDatabase;
  let outbox: Outbox<pg.PoolClient>;
  let stranger: pg.Client;
  let pid: number;
  let role: string;
  const relays: Relay[] = [];

  beforeAll(async () => {
    server = await startTestPostgres({ version, settings: { max_prepared_transactions: '2' } });
    recordServer(`PostgreSQL ${version}`);
  });
  afterAll(() => server.stop());
  beforeEach(async () => {
    db = await createTestDatabase({ serverUrl: server.connectionString });
    outbox = createOutbox<pg.PoolClient>({ db: fromPg(db.pool) });
    role = `stranger_${randomBytes(4).toString('hex')}`;
    await db.query(`create role ${role} login password 'secret'`);
    const url = Object.assign(new URL(db.url), { username: role, password: 'secret' }).href;
    stranger = new pg.Client({ connectionString: url, application_name: 'nightly job' });
    stranger.on('error', () => {});
    await stranger.connect();
    pid = (await stranger.query('select pg_backend_pid() as pid')).rows[0].pid;
  });
  afterEach(async () => {
    await stranger.end().catch(() => {});
    await Promise.all(relays.splice(0).map((relay) => relay.stop()));
    await db.query(`drop owned by ${role}; drop role ${role}`);
    await db.close();
  });

  const take = (lock: string) => stranger.query(`select pg_advisory_lock(${lock})`);
  const release = () => stranger.query('select pg_advisory_unlock_all()');
  const event = (id: string) => ({ type: 'made', aggregate: ['thing', id] as const, payload: {} });
  const emit = (...ids: string[]) => outbox.transaction((_tx, inside) => inside(ids.map(event)));
  const timedOut = { code: 'POSTCOMMIT_E_LOCK_TIMEOUT' };

  async function lockFindings(lockMsMax: number, admin = outbox.admin): Promise<Finding[]> {
    const { findings } = await admin.doctor({ only: ['locks'], limits: { lockMsMax } });
    return findings;
  }

  /** With the limit at 0 everything that is held counts as held for too long. */
  async function expectNamed(lock: string, { waiting = false } = {}): Promise<Finding> {
    const found = await until(
      async () =>
        (await lockFindings(waiting ? 60_000 : 0)).find(
          ({ severity, what }) =>
            severity !== 'ok' && what.includes(`session ${pid} (role ${role}, application nightly job`),
        ),
      { what: 'doctor names the session' },
    );
    expect(found.what).toContain(`the advisory lock of ${lock}`);
    if (waiting) expect(found.what).toMatch(/[1-9]\d* sessions? waiting for it/);
    expect(found.fix).toBe(`select pg_terminate_backend(${pid});`);
    return found;
  }

  /** Fails with this code, and within the bound. */
  async function expectBounded(msMax: number, call: () => Promise<unknown>, expected: object): Promise<void> {
    const began = performance.now();
    await expect(call()).rejects.toMatchObject(expected);
    expect(performance.now() - began).toBeLessThan(msMax);
  }

  function relayOf(): { relay: Relay; delivered: string[] } {
    const delivered: string[] = [];
    const relay = createRelay({
      connectionString: db.url,
      handlers: { made: { keep: async (made) => void delivered.push(made.aggregate.id) } },
      maintenance: { intervalMs: 1_000 },
    });
    relays.push(relay);
    return { relay, delivered };
  }

  test('is named only after a while, unless others wait', async () => {
    expect(await lockFindings(0)).toMatchObject([{ severity: 'ok' }]);
    await take(lockOf.prune);
    expect(await lockFindings(60_000)).toMatchObject([{ severity: 'ok' }]);
    await expectNamed('pruning');
    await release();
    expect(await lockFindings(0)).toMatchObject([{ severity: 'ok' }]);
    // Other locks are not the outbox's business.
    await take('7');
    await stranger.query(`select pg_advisory_lock(7, 7), pg_advisory_lock(${gates} + 77, 1)`);
    expect(await lockFindings(0)).toMatchObject([{ severity: 'ok' }]);
  });

  test('of pruning: prune, replay and requeueUnqueued fail in time, relays deliver', async () => {
    await emit('1');
    const { relay, delivered } = relayOf();
    await relay.runOnce();
    await db.query(`update postcommit.outbox_events set created_at = now() - interval '90 days'`);
    await take(lockOf.prune);
    await expectBounded(10_000, () => outbox.admin.prune({ olderThanMs: 1_000 }), timedOut);
    await Promise.all([
      expectBounded(15_000, () => outbox.admin.replay({ all: true }), timedOut),
      expectBounded(15_000, () => outbox.admin.requeueUnqueued(), timedOut),
      expectNamed('pruning', { waiting: true }),
    ]);
    const failed = new Promise<string>((resolve) => {
      relay.on('maintenanceFailed', ({ task, error }) => {
        if (task === 'prune') resolve(error);
      });
    });
    await relay.start();
    await emit('2');
    await until(() => delivered.includes('2'), { what: 'the second event is delivered' });
    expect(await failed).toContain('doctor --only locks');
    await release();
    expect(await outbox.admin.replay({ all: true })).toEqual({ count: 2 });
  });

  test('of partitions: rotate, drop and convert name it and fail in time', async () => {
    const inUse = {
      code: 'POSTCOMMIT_E_LOG_IN_USE',
      detail: expect.stringContaining(`session ${pid} (role ${role}, application nightly job`),
    };
    const { partitions } = outbox.admin;
    await take(lockOf.partitions);
    await expectBounded(10_000, () => partitions.convert('day', { patienceMs: 0 }), inUse);
    await expectNamed('partitions');
    await release();
    await emit('1');
    await partitions.convert('day');
    await take(lockOf.partitions);
    await expectBounded(10_000, () => partitions.rotate({ patienceMs: 0 }), inUse);
    await expectBounded(10_000, () => partitions.drop(0, { patienceMs: 0 }), inUse);
    const rotating = partitions.rotate();
    await expectNamed('partitions', { waiting: true });
    await release();
    expect(await rotating).toMatchObject({ unit: 'day' });
  });

  test('of unshelving: forget fails in time, relays deliver', async () => {
    await take(lockOf.unshelve);
    await db.query(`insert into postcommit.outbox_destinations (destination) values ('gone')`);
    await expectBounded(15_000, () => outbox.admin.forget('gone'), timedOut);
    await expectNamed('unshelving');
    const { relay, delivered } = relayOf();
    await emit('1');
    await relay.runOnce();
    expect(delivered).toEqual(['1']);
    await release();
    await outbox.admin.forget('gone');
  });

  test('of a queue: pausing it fails in time', async () => {
    // The stranger may not call the function.
    const [{ key }] = await db.query(`select ${lockOf.queue('default')}::text as key`);
    await take(key as string);
    await expectBounded(10_000, () => outbox.admin.pauseQueue('default'), timedOut);
    await expectNamed('a queue');
    await release();
    await outbox.admin.pauseQueue('default');
  });

  test('of migrations: migrate fails in time', async () => {
    await take(lockOf.migrate);
    const migrating = (lockTimeoutMs: number) => migrate({ connectionString: db.url, lockTimeoutMs });
    await expectBounded(10_000, () => migrating(100), timedOut);
    await expectNamed('migrations');
    const waiting = migrating(60_000);
    await expectNamed('migrations', { waiting: true });
    await release();
    await waiting;
    await expect(migrating(0)).rejects.toMatchObject({ code: 'POSTCOMMIT_E_BAD_OPTION' });
  });

  test('of all gates: emitters wait for as long as their lock_timeout says', async () => {
    for (let gate = 0; gate < 16; gate++) await take(`${gates}, ${gate}`);
    await expectEmitBounded(
      () => emit('1'),
      (tx) => outbox.emit(tx, event('1')),
    );
    await expectNamed('an emit gate');
    const many = Array.from({ length: 1_100 }, (_, n) => `${n}`);
    await expectBounded(20_000, () => emit(...many), { code: 'POSTCOMMIT_E_BULK_EMIT_BLOCKED' });
    const waiting = emit('1');
    await expectNamed('an emit gate', { waiting: true });
    await release();
    await waiting;
  });

  test('of a key: emitters of the aggregate wait for as long as their lock_timeout says', async () => {
    await db.query(`grant usage on schema postcommit to ${role}`);
    await take(lockOf.key('1'));
    await expectEmitBounded(
      () => emit('1'),
      (tx) => outbox.emit(tx, [event('1'), event('2')]),
    );
    await emit('2');
    const waiting = emit('1');
    await expectNamed('an aggregate key', { waiting: true });
    await release();
    await waiting;
  });

  test('of an id: emitOnce waits for as long as its lock_timeout says', async () => {
    const id = randomUUID();
    const once = (tx: pg.PoolClient) => outbox.emitOnce(tx, { ...event('1'), id });
    await take(lockOf.id(id));
    await expectEmitBounded(() => outbox.transaction(once), once);
    await expectNamed('an event id');
    const waiting = outbox.transaction(once);
    await expectNamed('an event id', { waiting: true });
    await release();
    expect(await waiting).toEqual({ id, written: true });
  });

  test('of a relay: it runs with its lease only; a relay that holds its own lock is not named', async () => {
    const { relay, delivered } = relayOf();
    await relay.start();
    expect((await outbox.admin.relays()).map(({ sessionLock }) => sessionLock)).toEqual([true]);
    // A claim holds the lock of its queue for a moment, which may be found too.
    await until(async () => (await lockFindings(0)).every(({ severity }) => severity === 'ok'), {
      what: 'no lock is named',
    });
    // Another session is the next in line for its lock, so that the relay finds it taken at its next connection.
    const [{ token }] = await db.query('select token::text from postcommit.outbox_relays');
    const taken = take(lockOf.relay(token));
    await until(
      async () =>
        (await db.query(`select from pg_locks where locktype = 'advisory' and not granted and pid = ${pid}`)).length >
        0,
      { what: 'the other session waits' },
    );
    await db.query(
      `select pg_terminate_backend(pid) from pg_stat_activity
        where application_name like 'postcommit heartbeat%' and datname = current_database()`,
    );
    await taken;
    const found = await expectNamed('a relay');
    expect(found.consequence).toContain('until its lease ends');
    await emit('1');
    await until(() => delivered.includes('1'), { what: 'the event is delivered' });
    await release();
    await until(async () => (await outbox.admin.relays())[0]?.sessionLock, { what: 'it has its lock again' });
  });

  test('is named to a reader who may not look at the sessions of others', async () => {
    const name = `reader_${randomBytes(4).toString('hex')}`;
    await db.query(`create role ${name} login password 'secret'; grant usage on schema postcommit to ${name};
      grant select on all tables in schema postcommit to ${name}`);
    const pool = quietPool(Object.assign(new URL(db.url), { username: name, password: 'secret' }).href, { max: 1 });
    onTestFinished(async () => {
      await pool.end();
      await db.query(`drop owned by ${name}; drop role ${name}`).catch(() => {});
    });
    const { admin } = createOutbox({ db: fromPg(pool) });
    await take(lockOf.partitions);
    expect(await lockFindings(60_000, admin)).toMatchObject([
      {
        severity: 'note',
        what: `session ${pid} (role ${role}, application nightly job) holds the advisory lock of partitions`,
      },
    ]);
  });

  test('is named when it is a prepared transaction that has emitted', async () => {
    const client = await db.pool.connect();
    await client.query('begin');
    await outbox.emit(client, event('1'));
    await client.query(`prepare transaction 'left behind'`);
    client.release();
    const waiting = emit('1');
    const found = await until(
      async () => (await lockFindings(60_000)).find(({ what }) => what.includes(`'left behind'`)),
      { what: 'doctor names the prepared transaction' },
    );
    expect(found.fix).toContain(`rollback prepared 'left behind'`);
    await db.query(`commit prepared 'left behind'`);
    await waiting;
  });

  /** Once in a transaction of the outbox, once in one of the caller's, both with a lock_timeout of the role. */
  async function expectEmitBounded(
    inOurs: () => Promise<unknown>,
    inYours: (tx: pg.PoolClient) => Promise<unknown>,
  ): Promise<void> {
    const [{ name }] = await db.query('select current_database() as name');
    await db.query(`alter database "${name}" set lock_timeout = '200ms'`);
    // Settings of a database count for new sessions.
    const bounded = quietPool(db.url, { max: 1 });
    const ours = outbox;
    outbox = createOutbox<pg.PoolClient>({ db: fromPg(bounded) });
    try {
      await expectBounded(5_000, inOurs, timedOut);
      const client = await bounded.connect();
      await client.query('begin');
      await expectBounded(5_000, () => inYours(client), timedOut);
      await client.query('rollback');
      client.release();
    } finally {
      outbox = ours;
      await bounded.end();
      await db.query(`alter database "${name}" reset lock_timeout`);
    }
  }
});
