import pg from 'pg';
import { expect, onTestFinished, test } from 'vitest';
import { createOutbox, createRelay, fromPg, migrate, migrationSql, Reject } from '../../src/index.ts';
import { createTestDatabase } from '../support/database.ts';
import { setNameTraps } from '../support/name-traps.ts';
import { startTestPostgres } from '../support/postgres-server.ts';
import { until } from '../support/wait.ts';

/** A client of the superuser to whom names mean what pg_catalog says. */
async function connectSafely(url: string): Promise<pg.Client> {
  const client = new pg.Client({
    connectionString: url,
    options: '-c search_path=pg_catalog -c client_min_messages=error',
  });
  await client.connect();
  onTestFinished(() => client.end());
  return client;
}

test.each([18, 14] as const)(
  'functions and operators that another role has created in public never run, on PostgreSQL %i',
  async (version) => {
    const server = await startTestPostgres({ version });
    onTestFinished(() => server.stop());
    const db = await createTestDatabase({ migrate: false, serverUrl: server.connectionString });
    onTestFinished(() => db.close());
    const admin = await connectSafely(db.url);
    await admin.query('create role stranger');
    const sprung = await setNameTraps(admin, 'stranger');

    // The traps work: this is how the relay's and the owner's code used to be written.
    await db.query(`select array_to_string(array[1::bigint], ',')`);
    expect(await sprung()).toEqual(['public.array_to_string(bigint[], text) ran as postgres']);
    await admin.query('delete from public.sprung');

    await migrate({ connectionString: db.url, dryRun: true });
    await migrate({ connectionString: db.url });
    expect(await sprung()).toEqual([]);
    await expectNothingOf(admin, 'public', 'postcommit');
    await db.query(migrationSql({ schema: 'printed' }));
    await expectNothingOf(admin, 'public', 'printed');

    await useEverything(db.url, admin);
    expect(await sprung()).toEqual([]);
    await callEverything(admin);
    expect(await sprung()).toEqual([]);
  },
  120_000,
);

/** No default, check, index, view or function of a schema was made with something of another one. */
async function expectNothingOf(admin: pg.Client, other: string, schema: string): Promise<void> {
  const { rows } = await admin.query(
    `select pg_describe_object(d.classid, d.objid, d.objsubid) as ours, pg_describe_object(d.refclassid, d.refobjid, 0) as theirs
       from pg_depend d
      where (d.refclassid = 'pg_proc'::regclass and d.refobjid in (select oid from pg_proc where pronamespace = $1::text::regnamespace)
             or d.refclassid = 'pg_operator'::regclass
                and d.refobjid in (select oid from pg_operator where oprnamespace = $1::text::regnamespace))
        and pg_describe_object(d.classid, d.objid, d.objsubid) like '%' || $2::text || '.%'`,
    [other, schema],
  );
  expect(rows).toEqual([]);
}

/** What applications, relays and operators do, with the search_path that PostgreSQL gives them. */
async function useEverything(url: string, admin: pg.Client): Promise<void> {
  const pool = new pg.Pool({ connectionString: url, max: 4 });
  const outbox = createOutbox({ db: fromPg(pool) });
  const eventOf = (n: number, how: string) => ({
    type: 'thing.happened',
    aggregate: ['thing', n % 3] as const,
    payload: { how },
  });
  let away = true;
  const relay = createRelay({
    connectionString: url,
    pollIntervalMs: 50,
    leaseMs: 1_500,
    retry: { delaysMs: [1] },
    maintenance: { intervalMs: 100 },
    handlers: {
      'thing.happened': {
        work: (event) => {
          const { how } = event.payload as { how: string };
          if (how === 'reject') throw new Reject('no');
          if (how === 'fail') throw new Error('not now');
        },
      },
    },
    destinations: {
      broker: {
        publisher: {
          kind: 'test',
          capabilities: {
            batchSizeMax: 10,
            batchBytesMax: 1_000_000,
            batchesInFlightMax: 1,
            ordered: true,
            keyRuns: true,
            deduplicates: false,
            cloudEventsPrefix: 'ce-',
          },
          connect: async () => {},
          publish: async (batch) =>
            batch.map(() => (away ? { kind: 'unavailable' as const, reason: 'away' } : { kind: 'delivered' as const })),
          health: async () => {
            if (away) throw new Error('away');
          },
          close: async () => {},
        },
      },
    },
    route: () => ({ to: 'broker' }),
  });
  try {
    await outbox.transaction((_tx, emit) => emit([eventOf(1, 'fine'), eventOf(2, 'fail'), eventOf(3, 'reject')]));
    await outbox.transaction([{ text: 'select 1' }], eventOf(4, 'fine'));
    const client = await pool.connect();
    await client.query('begin');
    await outbox.emit(client, eventOf(5, 'fine'));
    await outbox.emit(client, [eventOf(6, 'fine'), eventOf(7, 'fine')]);
    await outbox.emitOnce(client, { ...eventOf(8, 'fine'), id: '0192f0c1-8f57-7000-8000-000000000001' });
    await client.query('savepoint s');
    await outbox.emit(
      client,
      Array.from({ length: 300 }, (_, n) => ({ ...eventOf(n, 'fine'), aggregate: ['bulk', n] as const })),
    );
    await client.query('commit');
    await client.query(`select postcommit.emit('thing.happened', 'thing', '1', '{"how": "fine"}')`);
    await client.query(
      `select postcommit.emit_once('0192f0c1-8f57-7000-8000-000000000002', 'thing.happened', 'thing', '1', '{"how": "fine"}')`,
    );
    await client.query(
      `insert into postcommit.outbox_events (aggregate_type, aggregate_id, event_type, payload) values ('thing', '9', 'thing.happened', '{}')`,
    );
    client.release();

    await relay.start();
    const left = async (table: string) =>
      Number((await admin.query(`select count(*) as n from postcommit.${table}`)).rows[0].n);
    await until(async () => (await left('outbox_queue')) === 0 && (await left('outbox_shelf')) > 0, {
      what: 'everything waits on the shelf or is a dead letter',
    });
    const operator = outbox.admin;
    await operator.counts();
    await operator.relays();
    await operator.destinations();
    await operator.missingTargets();
    await operator.unhandledTypes();
    await operator.maintenance();
    await operator.doctor();
    const { events } = await operator.list({ type: 'thing.happened' });
    await operator.list({ status: 'PENDING', aggregate: ['thing', '1'] });
    await operator.find((events[0] as { id: string }).id);
    await operator.find((events[0] as { seq: string }).seq);
    const { deadLetters } = await operator.deadLetters();
    expect(deadLetters.length).toBeGreaterThan(1);
    await operator.discard({ ids: [(deadLetters[0] as { id: string }).id] });
    await operator.retry({ all: true });
    await operator.pauseDestination('broker');
    await operator.resumeDestination('broker');
    away = false;
    await until(async () => (await left('outbox_shelf')) === 0, { what: 'the shelf is empty', timeoutMs: 20_000 });
    await operator.replay({ all: true });
    await operator.requeueUnqueued();
    await operator.partitions.convert('day');
    await operator.partitions.rotate();
    await operator.partitions.list();
    await until(async () => (await left('outbox_queue')) === 0, { what: 'all is delivered again', timeoutMs: 20_000 });
    await operator.prune({ olderThanMs: 60_000, dryRun: true });
    await until(() => relay.stats().maintenance.length === 6, { what: 'all tasks have run', timeoutMs: 20_000 });
    expect(relay.stats().maintenance.map(({ error }) => error)).toEqual(Array(6).fill(undefined));
    await relay.stop();
    await operator.forget('broker');
  } finally {
    await relay.stop();
    await pool.end();
  }
}

/** Every function of the schema, with a value of each argument's type, and public in the search_path. */
async function callEverything(admin: pg.Client): Promise<void> {
  const { rows } = await admin.query<{ name: string; args: string[]; fixed: boolean; procedure: boolean }>(
    `select p.oid::regproc::text as name, p.prokind = 'p' as procedure,
            p.prosqlbody is not null or coalesce(array_to_string(p.proconfig, ' ') like '%search_path=pg_catalog, pg_temp%', false) as fixed,
            array(select format_type(a, null) from unnest(p.proargtypes::oid[]) with ordinality x(a, o) order by o) as args
       from pg_proc p
      where p.pronamespace = 'postcommit'::regnamespace and p.prorettype <> 'trigger'::regtype`,
  );
  expect(rows.length).toBeGreaterThan(30);
  expect(rows.filter(({ fixed }) => !fixed)).toEqual([]);
  await admin.query(`set search_path = "$user", public`);
  for (const { name, args, procedure } of rows) {
    const values = args.map((type) => (type.endsWith('[]') ? `'{}'::${type}` : `null::${type}`)).join(', ');
    await admin.query('begin');
    await admin.query(procedure ? `call ${name}(${values})` : `select ${name}(${values})`).catch(() => {});
    // What a trap has written would be gone with the transaction, so ask before it ends.
    const { rows: seen } = await admin
      .query('select name from public.sprung')
      .catch(() => ({ rows: [] as { name: string }[] }));
    await admin.query('rollback');
    expect({ name, seen }).toEqual({ name, seen: [] });
  }
}

/**
 * Creates, as a role that may create in the schema, overloads of each of its functions that fit an untyped call better: with text
 * for every argument, and without the arguments that have a default. Returns how to read which of them ran.
 */
async function setOverloads(admin: pg.Client, schema: string, role: string): Promise<() => Promise<string[]>> {
  await admin.query(`create schema traps; create table traps.sprung (name text, who text)`);
  await admin.query(`grant usage on schema traps to public; grant insert on traps.sprung to public`);
  await admin.query(`grant create, usage on schema "${schema}" to "${role}"`);
  const { rows } = await admin.query<{ name: string; kind: string; args: string[]; defaults: number }>(
    `select p.proname as name, p.prokind as kind, p.pronargdefaults as defaults,
            array(select format_type(a, null) from unnest(p.proargtypes::oid[]) with ordinality x(a, o) order by o) as args
       from pg_proc p where p.pronamespace = $1::text::regnamespace and p.prorettype <> 'trigger'::regtype`,
    [schema],
  );
  await admin.query(`set role "${role}"`);
  let created = 0;
  for (const { name, kind, args, defaults } of rows) {
    const texts = args.map(() => 'text');
    const shorter = Array.from({ length: defaults }, (_, n) => args.length - 1 - n);
    for (const types of [texts, ...shorter.flatMap((count) => [args.slice(0, count), texts.slice(0, count)])]) {
      const signature = `"${schema}".${name}(${types.join(', ')})`;
      const body = `$b$ begin insert into traps.sprung values ('${signature}', current_user); end $b$`;
      const what = kind === 'p' ? `procedure ${signature}` : `function ${signature} returns void`;
      // It exists already where the function takes nothing but text.
      await admin.query(`create ${what} language plpgsql as ${body}`).then(
        () => created++,
        () => {},
      );
    }
  }
  await admin.query('reset role');
  expect(created).toBeGreaterThan(20);
  return async () => {
    const { rows: sprung } = await admin.query('select distinct name, who from traps.sprung order by 1');
    return sprung.map(({ name, who }) => `${name} ran as ${who}`);
  };
}

test.each([18, 14] as const)(
  "overloads that another role has created in the outbox's own schema never run, on PostgreSQL %i",
  async (version) => {
    const server = await startTestPostgres({ version });
    onTestFinished(() => server.stop());
    const db = await createTestDatabase({ migrate: false, serverUrl: server.connectionString });
    onTestFinished(() => db.close());
    const schema = 'public';
    const connection = { connectionString: db.url, schema };
    const first = await migrate(connection);
    expect(first.schemaCreators).toEqual(version === 14 ? ['PUBLIC'] : undefined);
    const admin = await connectSafely(db.url);
    await admin.query('create role stranger');
    const sprung = await setOverloads(admin, schema, 'stranger');
    expect((await migrate(connection)).schemaCreators).toContain('stranger');

    const outbox = createOutbox({ db: fromPg(db.pool), schema });
    const eventOf = (n: number) => ({ type: 'done', aggregate: ['thing', n] as const, payload: n });
    await outbox.transaction((_tx, emit) => emit(eventOf(1)));
    await outbox.transaction((_tx, emit) => emit([eventOf(1), eventOf(2)]));
    await outbox.transaction(async (tx) => {
      await outbox.emitOnce(tx, { ...eventOf(3), id: '0192f0c1-8f57-7000-8000-000000000003' });
      await outbox.emit(tx, [eventOf(4), eventOf(5), { ...eventOf(6), payload: 'x'.repeat(20_000) }]);
    });
    let failing = true;
    const relay = createRelay({
      ...connection,
      pollIntervalMs: 50,
      retry: { delaysMs: [1] },
      maintenance: { intervalMs: 100 },
      handlers: {
        done: {
          work: ({ payload }) => {
            if (payload === 5 && failing) throw new Reject('no');
          },
        },
      },
    });
    await relay.start();
    onTestFinished(() => relay.stop());
    const operator = outbox.admin;
    await until(async () => (await operator.counts()).failed === 1, { what: 'one event is a dead letter' });
    await until(() => relay.stats().delivered === 6, { what: 'the others are delivered' });
    failing = false;
    await operator.retry({ all: true });
    await outbox.transaction((_tx, emit) => emit(eventOf(1)));
    await until(() => relay.stats().delivered === 8, { what: 'all are delivered' });
    await operator.replay({ all: true });
    await operator.requeueUnqueued();
    const { findings } = await operator.doctor();
    expect(findings.map(({ what }) => what).join('\n')).toContain('stranger may create functions in the schema public');
    await operator.partitions.convert('day');
    await operator.partitions.rotate();
    await operator.partitions.list();
    await operator.prune({ olderThanMs: 60_000 });
    await until(() => relay.stats().maintenance.length === 6, { what: 'all tasks have run', timeoutMs: 20_000 });
    await relay.stop();
    await admin.query(`insert into public.outbox_destinations (destination) values ('gone')`);
    await operator.forget('gone');
    expect(await sprung()).toEqual([]);
  },
  120_000,
);
