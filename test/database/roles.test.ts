import { randomUUID } from 'node:crypto';
import type pg from 'pg';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { roleRights } from '../../src/database/roles.ts';
import { createInbox, createOutbox, createRelay, fromPg, grantsSql, Reject } from '../../src/index.ts';
import { dropExpired } from '../../src/outbox/maintaining/drop-partition.ts';
import { pruneEvents } from '../../src/outbox/maintaining/prune-events.ts';
import { firstTime, pruneProcessed } from '../../src/outbox/maintaining/prune-processed.ts';
import { pruneRelays } from '../../src/outbox/maintaining/prune-relays.ts';
import { rotate } from '../../src/outbox/maintaining/rotate.ts';
import { silentLogger } from '../../src/telemetry/logging.ts';
import { createTestDatabase } from '../support/database.ts';
import { postgresVersions, serverUrlOf } from '../support/postgres-versions.ts';
import { ScriptedPublisher } from '../support/scripted-publisher.ts';
import { recordServer } from '../support/servers-used.ts';
import { until } from '../support/wait.ts';
import { RoleScenario } from './role-scenario.ts';

const denied = { code: '42501' };

function quoted(name: string): string {
  return `"${name.replaceAll('"', '""')}"`;
}

describe.each(postgresVersions)('least privilege on PostgreSQL %i', (version) => {
  let scenario: RoleScenario;
  let tables: string[];

  beforeAll(async () => {
    scenario = await RoleScenario.create(serverUrlOf(version));
    const [row] = await scenario.db.query('show server_version');
    recordServer(`PostgreSQL ${row.server_version}`);
    const rows = await scenario.db.query<{ name: string }>(
      `select relname as name from pg_class where relnamespace = 'postcommit'::regnamespace and relkind in ('r', 'p')`,
    );
    tables = rows.map(({ name }) => name).sort();
  });
  afterAll(async () => {
    await scenario?.close();
  });

  async function refusesAll(pool: pg.Pool, statements: readonly string[]): Promise<void> {
    for (const statement of statements) await expect(pool.query(statement), statement).rejects.toMatchObject(denied);
  }

  test('the emitter emits in every style', async () => {
    const pool = scenario.pool('emitter');
    const outbox = createOutbox({ db: fromPg(pool) });
    const event = (n: number) => ({ type: 'styled', aggregate: ['style', n] as const, payload: { n } });
    await outbox.transaction((_tx, emit) => emit([event(1), event(2)]));
    const client = await pool.connect();
    await client.query('begin');
    await outbox.emit(client, { ...event(3), delayMs: 1 });
    await client.query('commit');
    client.release();
    await createOutbox({ db: fromPg(pool), serialise: false }).transaction((_tx, emit) => emit(event(4)));
    await pool.query(`select postcommit.emit('styled', 'style', '5', '{"n": 5}')`);
    await pool.query(
      `select postcommit.emit('[{"event_type": "styled", "aggregate_type": "style", "aggregate_id": "6", "payload": {"n": 6}}]')`,
    );
    await pool.query(
      `insert into postcommit.outbox_events (id, aggregate_type, aggregate_id, event_type, schema_version, ordering_key, payload, headers, available_at, created_at)
       values ($1, 'style', '7', 'styled', 1, 'k', '{"n": 7}', '{}', now(), now())`,
      [randomUUID()],
    );
    await outbox.transaction((_tx, emit) => emit(Array.from({ length: 300 }, (_, i) => event(1_000 + i))));
    const seen = await scenario.db.query(
      `select count(*)::integer as events, count(q.seq)::integer as queued
         from postcommit.outbox_events e left join postcommit.outbox_queue q using (seq) where e.event_type = 'styled'`,
    );
    expect(seen).toEqual([{ events: 307, queued: 307 }]);
  });

  test('the emitter can do nothing else', async () => {
    const pool = scenario.pool('emitter');
    await refusesAll(pool, [
      'select from postcommit.outbox_status',
      ...tables.flatMap((table) => [
        `select from postcommit.${table}`,
        `delete from postcommit.${table}`,
        `truncate postcommit.${table}`,
      ]),
      `update postcommit.outbox_events set payload = '1'`,
      'update postcommit.outbox_queue set claimed_by = 1',
      `insert into postcommit.outbox_queue (seq) values (1)`,
      // An emitter that chooses its seq could jump the queue, or take the next seq of all emitters.
      `insert into postcommit.outbox_events (seq, aggregate_type, aggregate_id, event_type, payload)
         overriding system value values (1, 'a', 'b', 'c', '1')`,
      `select setval(pg_get_serial_sequence('postcommit.outbox_events', 'seq'), 1)`,
      `insert into postcommit.outbox_events (aggregate_type, aggregate_id, event_type, payload)
         values ('a', 'b', 'c', '1') returning payload`,
      'create table postcommit.mine ()',
      'drop table postcommit.outbox_events',
      'alter table postcommit.outbox_events disable trigger user',
    ]);
    await expect(createOutbox({ db: fromPg(pool) }).admin.counts()).rejects.toMatchObject({
      code: 'POSTCOMMIT_E_PERMISSION_DENIED',
    });
  });

  test('no function but one lends the emitter more: the trigger’s neither', async () => {
    const callable = await scenario.db.query<{ name: string }>(
      `select p.oid::regprocedure::text as name from pg_proc p
        where p.pronamespace = 'postcommit'::regnamespace and p.prosecdef and has_function_privilege($1, p.oid, 'execute')`,
      [scenario.names.emitter],
    );
    // It says which of the given ids are in the log, which emit_once needs to know.
    expect(callable).toEqual([{ name: 'postcommit.lock_new_ids(uuid[])' }]);
    // On a table of its own, the trigger would write into the queue whatever stands there.
    const client = await scenario.pool('emitter').connect();
    await client.query(
      'create temporary table forged (seq bigint, aggregate_type text, aggregate_id text, ordering_key text, available_at timestamptz)',
    );
    await expect(
      client.query(
        `create trigger forge after insert on forged referencing new table as emitted
         for each statement execute function postcommit.enqueue()`,
      ),
    ).rejects.toMatchObject(denied);
    client.release(true);
  });

  test('functions that run with their owner’s rights are not granted to PUBLIC, from the migrations on', async () => {
    const fresh = await createTestDatabase({ serverUrl: scenario.serverUrl });
    const functions = await fresh.query<{ name: string; path: string | null; open: boolean }>(
      `select p.oid::regprocedure::text as name, (select c from unnest(p.proconfig) c where c like 'search_path=%') as path,
              has_function_privilege('public', p.oid, 'execute') as open
         from pg_proc p where p.pronamespace = 'postcommit'::regnamespace and p.prosecdef`,
    );
    await fresh.close();
    expect(functions.map(({ name }) => name)).toContain('postcommit.enqueue()');
    for (const { name, path, open } of functions) {
      expect(open, name).toBe(false);
      // Resolves no name by the search_path: see the next test.
      if (name !== 'postcommit.enqueue()') expect(path, name).toBe('search_path=pg_catalog, pg_temp');
    }
  });

  test('an emitter cannot lead the trigger astray by its search_path', async () => {
    const client = await scenario.pool('emitter').connect();
    await client.query(`
      create temporary table outbox_queue (seq bigint, key bigint, available_at timestamptz);
      create temporary table emitted (seq bigint, aggregate_type text, aggregate_id text, ordering_key text,
        schema_version integer, headers jsonb, available_at timestamptz);
      insert into emitted (seq, aggregate_type, aggregate_id) values (-1, 'forged', 'forged');
      create function pg_temp.key_hash(text, text, text) returns bigint language sql as 'select 13::bigint';
      create function pg_temp.hashtextextended(text, bigint) returns bigint language sql as 'select 13::bigint';
      set search_path = pg_temp, pg_catalog`);
    const id = randomUUID();
    await client.query(
      `insert into postcommit.outbox_events (id, aggregate_type, aggregate_id, event_type, payload, available_at)
       values ($1, 'a', 'astray', 'x', '1', now() + interval '1 hour')`,
      [id],
    );
    const { rows } = await client.query('select count(*)::integer as n from pg_temp.outbox_queue');
    expect(rows).toEqual([{ n: 0 }]);
    client.release(true);
    const queued = await scenario.db.query(
      `select q.key = postcommit.key_hash('a', 'astray', null) as ours, q.seq > 0 as real
         from postcommit.outbox_queue q join postcommit.outbox_events e using (seq) where e.id = $1`,
      [id],
    );
    expect(queued).toEqual([{ ours: true, real: true }]);
    expect(await scenario.db.query('select from postcommit.outbox_queue where seq < 0 or key = 13')).toEqual([]);
  });

  test('the relay delivers, retries, dead-letters, shelves and replays, and operators work with its role', async () => {
    const emitter = createOutbox({ db: fromPg(scenario.pool('emitter')) });
    const emit = (type: string, payload: unknown, delayMs = 0) =>
      emitter.transaction((_tx, send) => send({ type, aggregate: ['thing', randomUUID()], payload, delayMs }));
    const { admin } = createOutbox({ db: fromPg(scenario.pool('relay')) });
    const seen: string[] = [];
    const broker = new ScriptedPublisher();
    broker.mood = 'away';
    const relay = createRelay({
      connectionString: scenario.url('relay'),
      name: 'least',
      pollIntervalMs: 50,
      retry: { delaysMs: [1] },
      poison: 'block',
      handlers: {
        works: { handle: (event) => void seen.push(event.id) },
        flaky: {
          handle: (event, { attempt }) => {
            if (attempt === 1) throw new Error('once');
            seen.push(event.id);
          },
        },
        poison: {
          handle: () => {
            throw new Reject('never');
          },
        },
      },
      destinations: { broker },
      route: (event) => (event.type === 'sent' ? { to: 'broker' } : null),
    });
    await relay.start();
    const [works, flaky] = [await emit('works', 1), await emit('flaky', 2)];
    const [poison, sent] = [await emit('poison', 3), await emit('sent', 4)];
    const statusOf = async (id: string) => (await admin.find(id))?.status;
    await until(() => seen.includes(works) && seen.includes(flaky), { what: 'both were delivered' });
    await until(async () => (await statusOf(poison)) === 'FAILED', { what: 'the poison is a dead letter' });
    await until(async () => (await admin.counts()).shelved === 1, { what: 'the event waits for the broker' });
    broker.mood = 'up';
    await admin.resumeDestination('broker');
    await until(async () => (await statusOf(sent)) === 'SENT', { what: 'it was sent' });

    expect(await admin.replay({ ids: [works] })).toEqual({ count: 1 });
    await until(() => seen.filter((id) => id === works).length === 2, { what: 'it was delivered again' });
    expect(await admin.retry({ ids: [poison] })).toEqual({ count: 1 });
    await until(async () => (await statusOf(poison)) === 'FAILED', { what: 'it failed again' });
    expect(await admin.discard({ ids: [poison] })).toEqual({ count: 1 });
    const [delayed, unwanted] = [await emit('works', 5, 3_600_000), await emit('works', 6, 3_600_000)];
    expect(await admin.makeDue({ ids: [delayed] })).toEqual({ count: 1, inFlight: 0 });
    await until(async () => (await statusOf(delayed)) === 'SENT', { what: 'it was released' });
    expect(await admin.cancel({ ids: [unwanted] })).toEqual({ count: 1, running: 0, delivered: 0 });
    await admin.pauseDestination('broker', { reason: 'test' });
    await admin.resumeDestination('broker');
    expect((await admin.list({ limit: 5 })).events).toHaveLength(5);
    expect((await admin.relays())[0]).toMatchObject({ name: 'least', state: 'alive' });
    await relay.stop();
    expect((await admin.relays())[0]).toMatchObject({ name: 'least', state: 'stopped' });
  });

  test('a relay whose role lacks rights does not start, and names the role and the command that grants them', async () => {
    const relay = createRelay({ connectionString: scenario.url('emitter'), handlers: { x: { see: () => {} } } });
    const role = scenario.names.emitter;
    const refused = relay.start();
    await expect(refused).rejects.toMatchObject({ code: 'POSTCOMMIT_E_PERMISSION_DENIED' });
    await expect(refused).rejects.toThrow(`The relay is connected as ${role}, which lacks `);
    // The database may be known from elsewhere than DATABASE_URL, so no connection is part of the command.
    await expect(refused).rejects.toThrow(
      new RegExp(`in this database, as the owner of the tables: npx postcommit grants --relay '${role}'$`),
    );
  });

  test('a relay emits the events of schedules only with the rights of an emitter as well', async () => {
    const own = await RoleScenario.create(scenario.serverUrl);
    const { admin } = createOutbox({ db: fromPg(own.pool('relay')) });
    const warnings: object[] = [];
    const relay = createRelay({
      connectionString: own.url('relay'),
      handlers: { ticked: { handle: () => {} } },
      schedules: { poll: { cron: '* * * * * *', event: { type: 'ticked', payload: null } } },
      logger: { ...silentLogger, warn: (fields, message) => warnings.push({ ...fields, message }) },
    });
    try {
      await relay.start();
      expect(warnings[0]).toMatchObject({
        message: 'the role of the relay may not emit, so its schedules fail',
        role: own.names.relay,
        lacks: expect.stringContaining('execute on close_gates'),
        fix: expect.stringContaining(`grants --emitter '${own.names.relay}' --relay '${own.names.relay}'`),
      });
      const poll = async () => (await admin.schedules.list())[0];
      await until(async () => (await poll())?.state === 'failing', { what: 'it may not emit' });
      expect((await poll())?.error).toContain('postcommit grants');
      const { findings } = await admin.doctor({ only: ['schedules'] });
      expect(findings[0]?.fix).toContain('postcommit grants --emitter');
      expect(await own.db.query('select from postcommit.outbox_events')).toEqual([]);
      await own.db.query(grantsSql({ emitter: own.names.relay }));
      await until(async () => (await poll())?.emitted, { what: 'it emits', timeoutMs: 20_000 });
      await relay.stop();
      await admin.schedules.remove('poll');
      expect(await createOutbox({ db: fromPg(own.pool('reader')) }).admin.schedules.list()).toEqual([]);
    } finally {
      await relay.stop();
      await own.close();
    }
  });

  test('the relay can neither forge, change nor delete events, nor create and drop tables', async () => {
    const changeable = roleRights.relay.tables.filter(({ privileges }) => privileges.includes('delete'));
    const untouchable = tables.filter((table) => !changeable.some((right) => right.table === table));
    expect(untouchable).toContain('outbox_events');
    await refusesAll(scenario.pool('relay'), [
      ...untouchable.map((table) => `delete from postcommit.${table}`),
      ...tables.map((table) => `truncate postcommit.${table}`),
      `update postcommit.outbox_events set payload = '1'`,
      `insert into postcommit.outbox_events (aggregate_type, aggregate_id, event_type, payload) values ('a', 'b', 'c', '1')`,
      `select postcommit.emit('a', 'b', 'c', '1')`,
      'update postcommit.migrations set version = 1',
      'create table postcommit.mine ()',
      'drop table postcommit.outbox_queue',
      'drop schema postcommit cascade',
      `select postcommit.partition_log('day')`,
    ]);
  });

  test('the relay’s role writes the audit and edits, and can neither change, forge nor remove what is recorded', async () => {
    const [role, pool] = [scenario.names.relay, scenario.pool('relay')];
    const { admin } = createOutbox({ db: fromPg(pool) });
    await scenario.pool('emitter').query(`select postcommit.emit('rejected', 'audited', '1', '{"n": 1}')`);
    const handlers = {
      rejected: {
        never: () => {
          throw new Reject('no');
        },
      },
    };
    await createRelay({ connectionString: scenario.url('relay'), handlers }).runOnce();
    const { deadLetters } = await admin.deadLetters({ type: 'rejected' });
    const { id, seq } = deadLetters[0] as { id: string; seq: string };
    await admin.as({ by: 'ann', reason: 'typo' }).editAndRetry(id, { n: 2 });
    const recorded = { by: 'ann', databaseRole: role, reason: 'typo' };
    expect((await admin.audit()).operations[0]).toMatchObject({ ...recorded, action: 'editAndRetry', changed: 1 });
    expect((await admin.find(id))?.edits).toMatchObject([recorded]);

    await refusesAll(pool, [
      `insert into postcommit.outbox_audit (operator, database_role, action) values ('bob', 'bob', 'retry')`,
      `update postcommit.outbox_audit set operator = 'bob'`,
      'delete from postcommit.outbox_audit',
      `insert into postcommit.outbox_edits (seq, number, payload, edited_by, database_role) values (${seq}, 2, '1', 'bob', 'bob')`,
      `update postcommit.outbox_edits set edited_by = 'bob'`,
      'delete from postcommit.outbox_edits',
    ]);
    const rows = 'select * from postcommit.outbox_audit order by id';
    const before = await scenario.db.query(rows);
    // The row is complete, and the rows of other roles are not this role's to complete.
    const foreign = await scenario.db.query(`select postcommit.start_operation('', 'retry', '{}', '') as id`);
    for (const each of [before.at(-1).id, foreign[0].id]) {
      await pool.query(`select postcommit.finish_operation($1, 0, 'nothing happened')`, [each]);
    }
    // SET ROLE does not hide who logged in.
    await scenario.db.query(`grant ${quoted(role)} to ${quoted(scenario.names.reader)}`);
    const client = await scenario.pool('reader').connect();
    await client.query(`set role ${quoted(role)}`);
    await client.query(`select postcommit.start_operation('', 'retry', '{}', '')`);
    client.release(true);
    await scenario.db.query(`revoke ${quoted(role)} from ${quoted(scenario.names.reader)}`);
    // What is younger than 90 days stays, whatever the caller asks for.
    for (const keepMs of ['0', '-1e15', 'null']) {
      expect((await pool.query(`select postcommit.prune_audit(1000, ${keepMs}) as pruned`)).rows).toEqual([
        { pruned: 0 },
      ]);
    }
    const after = await scenario.db.query(rows);
    expect(after.slice(0, before.length)).toEqual(before);
    expect(after.slice(before.length)).toMatchObject([
      { id: foreign[0].id, finished_at: null },
      { operator: scenario.names.reader, database_role: scenario.names.reader },
    ]);
    await scenario.db.query(
      `update postcommit.outbox_audit set started_at = now() - interval '91 days' where id = $1`,
      [foreign[0].id],
    );
    expect((await pool.query('select postcommit.prune_audit(1000, 0) as pruned')).rows).toEqual([{ pruned: 1 }]);
  });

  test('the reader reads everything and changes nothing', async () => {
    const pool = scenario.pool('reader');
    for (const table of [...tables, 'outbox_status']) await pool.query(`select * from postcommit.${table} limit 1`);
    const { admin } = createOutbox({ db: fromPg(pool) });
    const { events } = await admin.list({ limit: 1 });
    await admin.find(events[0]?.id ?? '');
    await admin.counts();
    await admin.destinations();
    expect((await admin.doctor()).findings.filter(({ what }) => what.startsWith('not checked'))).toEqual([]);
    for (const change of [() => admin.makeDue({ all: true }), () => admin.cancel({ all: true })]) {
      await expect(change()).rejects.toMatchObject({ code: 'POSTCOMMIT_E_PERMISSION_DENIED' });
    }
    await expect(admin.replay({ all: true })).rejects.toMatchObject({ code: 'POSTCOMMIT_E_PERMISSION_DENIED' });
    await refusesAll(pool, [
      ...tables.map((table) => `delete from postcommit.${table}`),
      'update postcommit.outbox_queue set claimed_by = 1',
      `select postcommit.emit('a', 'b', 'c', '1')`,
      'create table postcommit.mine ()',
    ]);
  });

  test('all continues after the log was partitioned, without new grants, and the relay’s role keeps it', async () => {
    const owner = createOutbox({ db: fromPg(scenario.db.pool) });
    await owner.admin.partitions.convert('day');
    const pool = scenario.pool('relay');
    const emitter = createOutbox({ db: fromPg(scenario.pool('emitter')) });
    const event = { type: 'kept', aggregate: ['thing', 1] as const, payload: 1 };
    await emitter.transaction((_tx, emit) => emit(event));
    await scenario.pool('emitter').query(`select postcommit.emit('kept', 'thing', '1', '2')`);
    const seen: unknown[] = [];
    const handlers = { kept: { see: (delivered: { payload: unknown }) => void seen.push(delivered.payload) } };
    await createRelay({ connectionString: scenario.url('relay'), handlers }).runOnce();
    expect(seen).toEqual([1, 2]);
    await scenario.db.query(`insert into postcommit.outbox_destinations (destination) values ('gone')`);
    await scenario.db.query(
      `insert into postcommit.outbox_shelf (destination, seq, attempts, takeovers, done)
       select 'gone', max(seq), 0, 0, '{see}' from postcommit.outbox_events`,
    );
    expect(await createOutbox({ db: fromPg(pool) }).admin.forget('gone')).toMatchObject({ sent: 1 });

    const { opened = 0 } = await rotate(pool, 'postcommit', { now: true });
    expect(opened).toBeGreaterThan(0);
    const keepNothing = { after: '0', keepMs: 0, rowsMax: 1_000 };
    expect(await pruneEvents(pool, 'postcommit', keepNothing)).toMatchObject({ finished: true });
    await pruneProcessed(pool, 'postcommit', { ...keepNothing, after: firstTime });
    await pruneRelays(pool, 'postcommit', 10);
    expect((await dropExpired(pool, 'postcommit', { keepMs: 0 })).dropped).toContain(opened - 1);
    const maintenance = { intervalMs: 100, keepEventsMs: 0, keepProcessedMs: 0 };
    const leader = createRelay({ connectionString: scenario.url('relay'), handlers, maintenance });
    await leader.start();
    const { admin } = createOutbox({ db: fromPg(pool) });
    const tasks = await until(
      async () => {
        const { tasks: done } = await admin.maintenance();
        return done.length === 6 && done;
      },
      { what: 'every task of maintenance has run' },
    );
    expect(tasks.filter(({ error }) => error !== undefined)).toEqual([]);
    await leader.stop();
    await refusesAll(pool, [
      'delete from postcommit.outbox_events_default',
      `drop table postcommit.outbox_events_p${opened}`,
    ]);
    const [leaf] = await scenario.db.query(
      `select bool_or(has_table_privilege($1, inhrelid, 'select')) as readable from pg_inherits
        where inhparent = 'postcommit.outbox_events'::regclass and inhrelid::regclass::text !~ '_p0$'`,
      [scenario.names.emitter],
    );
    expect(leaf).toEqual({ readable: false });
  });

  test('the consumer remembers what it processed, once, and sees nothing of the log', async () => {
    const pool = scenario.pool('consumer');
    const inbox = createInbox({ db: fromPg(pool) });
    const event = { consumer: 'mail', eventId: randomUUID() };
    expect(await inbox.onceOutside(event, () => 1)).toEqual({ duplicate: false, result: 1 });
    expect(await inbox.onceOutside(event, () => 1)).toEqual({ duplicate: true });
    await expect(inbox.prune()).rejects.toMatchObject({ code: 'POSTCOMMIT_E_PERMISSION_DENIED' });
    const role = quoted(scenario.names.consumer);
    await scenario.db.query(`grant delete on postcommit.processed_events to ${role}`);
    expect(await inbox.prune({ olderThanMs: 0 })).toBe(1);
    await scenario.db.query(`revoke delete on postcommit.processed_events from ${role}`);
    const remember = (id: string) =>
      pool.query(
        `insert into postcommit.processed_events (consumer_name, event_id) values ('c', $1) on conflict do nothing`,
        [id],
      );
    const id = randomUUID();
    expect((await remember(id)).rowCount).toBe(1);
    expect((await remember(id)).rowCount).toBe(0);
    expect((await pool.query('select from postcommit.processed_events where event_id = $1', [id])).rowCount).toBe(1);
    await refusesAll(pool, [
      'select from postcommit.outbox_events',
      'delete from postcommit.processed_events',
      `select postcommit.emit('a', 'b', 'c', '1')`,
    ]);
  });
});
