import { randomUUID } from 'node:crypto';
import { createServer } from 'node:net';
import pg from 'pg';
import { afterEach, describe, expect, inject, test } from 'vitest';
import type { Migration } from '../../src/database/migrations.ts';
import { checkHistory, readMigrations, readRoutines } from '../../src/database/migrations.ts';
import { createInbox, createOutbox, createRelay, fromPg, migrate, migrationSql } from '../../src/index.ts';
import { createTestDatabase, type TestDatabase } from '../support/database.ts';
import { postgresVersions, serverUrlOf } from '../support/postgres-versions.ts';
import { recordServer } from '../support/servers-used.ts';
import { within } from '../support/wait.ts';
import { schemaDump } from './schema-dump.ts';

const everything = ['0001_outbox', '0002_inbox'];
const routines = readRoutines().map(({ name }) => name);
const latest = everything.length;
const everyVersion = everything.map((_, i) => i + 1);

describe.each(postgresVersions)('migrate on PostgreSQL %i', (version) => {
  const serverUrl = serverUrlOf(version);
  const open: TestDatabase[] = [];

  afterEach(async () => {
    await Promise.all(open.splice(0).map((database) => database.close()));
  });

  async function emptyDatabase(): Promise<TestDatabase> {
    const database = await createTestDatabase({ migrate: false, serverUrl });
    open.push(database);
    return database;
  }

  async function versions(database: TestDatabase, schema = 'postcommit'): Promise<number[]> {
    const rows = await database.query<{ version: number }>(`select version from "${schema}".migrations order by 1`);
    return rows.map((row) => row.version);
  }

  async function expectToWork(database: TestDatabase, schema?: string): Promise<void> {
    const seen: unknown[] = [];
    const outbox = createOutbox({ db: fromPg(database.pool), ...(schema ? { schema } : {}), notify: false });
    const relay = createRelay({
      connectionString: database.url,
      ...(schema ? { schema } : {}),
      handlers: { x: { see: (event) => void seen.push(event.payload) } },
    });
    await outbox.transaction((_tx, emit) =>
      emit([1, 2].map((payload) => ({ type: 'x', aggregate: ['a', 1] as const, payload }))),
    );
    expect(await relay.runOnce()).toEqual({ delivered: 2, failed: 0, deadLettered: 0, complete: true });
    expect(seen).toEqual([1, 2]);
  }

  test('a fresh database, and again', async () => {
    const database = await emptyDatabase();
    const [row] = await database.query('show server_version');
    recordServer(`PostgreSQL ${row.server_version}`);
    expect(row.server_version).toMatch(new RegExp(`^${version}\\.`));

    const first = await migrate({ connectionString: database.url });
    expect(first).toEqual({ schema: 'postcommit', applied: everything, routines: expect.any(Array), version: latest });
    expect([...first.routines].sort()).toEqual(routines);
    const before = await schemaDump(database);
    expect(await migrate({ connectionString: database.url })).toEqual({ ...first, applied: [], routines: [] });
    expect(await schemaDump(database)).toEqual(before);
    expect(await versions(database)).toEqual(everyVersion);
    await expectToWork(database);
  });

  test('the inbox alone, again, and then the outbox', async () => {
    const database = await emptyDatabase();
    const alone = { connectionString: database.url, inboxOnly: true };
    const preview = await migrate({ ...alone, dryRun: true });
    expect(preview).toEqual({
      schema: 'postcommit',
      applied: ['0002_inbox'],
      routines: ['record_processed'],
      version: 0,
    });
    expect(await migrate(alone)).toEqual({ ...preview, version: 2 });
    expect(await migrate(alone)).toEqual({ ...preview, applied: [], routines: [], version: 2 });
    const tables = `select relname from pg_class where relnamespace = 'postcommit'::regnamespace and relkind = 'r' order by 1`;
    expect((await database.query(tables)).map(({ relname }) => relname)).toEqual([
      'migrations',
      'outbox_routines',
      'processed_events',
    ]);
    const inbox = createInbox({ db: fromPg(database.pool) });
    const event = { consumer: 'mail', eventId: randomUUID() };
    expect(await inbox.onceOutside(event, () => 1)).toEqual({ duplicate: false, result: 1 });

    const whole = await migrate({ connectionString: database.url });
    expect(whole).toMatchObject({ applied: ['0001_outbox'], version: 2 });
    expect([...whole.routines, 'record_processed'].sort()).toEqual(routines);
    expect(await versions(database)).toEqual(everyVersion);
    expect(await inbox.onceOutside(event, () => 1)).toEqual({ duplicate: true });
    await expectToWork(database);
    const atOnce = await emptyDatabase();
    await migrate({ connectionString: atOnce.url });
    expect(await schemaDump(database)).toEqual(await schemaDump(atOnce));
  });

  test('the SQL of the inbox alone does the same', async () => {
    const database = await emptyDatabase();
    await database.query(migrationSql({ inboxOnly: true }));
    expect(await migrate({ connectionString: database.url, inboxOnly: true })).toMatchObject({
      applied: [],
      version: 2,
    });
  });

  test('ten at once: one applies, the others find nothing to do', async () => {
    const database = await emptyDatabase();
    const results = await Promise.all(Array.from({ length: 10 }, () => migrate({ connectionString: database.url })));
    expect(results.map(({ applied }) => applied.length).sort()).toEqual([0, 0, 0, 0, 0, 0, 0, 0, 0, latest]);
    expect(new Set(results.map((result) => result.version))).toEqual(new Set([latest]));
    expect(await versions(database)).toEqual(everyVersion);
  });

  test('the printed SQL makes the same, and migrate() then finds nothing to do', async () => {
    const [printed, migrated] = await Promise.all([emptyDatabase(), emptyDatabase()]);
    for (const schema of ['postcommit', 'Some "Other" $$ $& schema']) {
      await migrate({ connectionString: migrated.url, schema });
      await printed.query(migrationSql({ schema }));
      const dump = await schemaDump(printed, schema);
      expect(dump).toEqual(await schemaDump(migrated, schema));
      for (const [part, rows] of Object.entries(dump)) expect(rows.length, part).toBeGreaterThan(0);
      expect(await migrate({ connectionString: printed.url, schema })).toMatchObject({ applied: [], routines: [] });
      await expectToWork(printed, schema);
    }
    await printed.query(migrationSql({ after: latest })); // Nothing left: runs and changes nothing.
    expect(await versions(printed)).toEqual(everyVersion);
  });

  test('two schemas have nothing in common', async () => {
    const database = await emptyDatabase();
    for (const schema of ['one', 'two']) await migrate({ connectionString: database.url, schema });
    await expectToWork(database, 'two');
    expect(await database.query('select * from one.outbox_events')).toEqual([]);
    await database.query('drop schema one cascade');
    await expectToWork(database, 'two');
  });

  test('a database that is newer is refused, and nothing is changed', async () => {
    const database = await emptyDatabase();
    await migrate({ connectionString: database.url });
    await database.query(`insert into postcommit.migrations (version, name, checksum) values ($1, 'later', 'x')`, [
      latest + 1,
    ]);
    const before = await schemaDump(database);
    await expect(migrate({ connectionString: database.url })).rejects.toMatchObject({
      code: 'POSTCOMMIT_E_MIGRATION_NEWER',
    });
    await expect(migrate({ connectionString: database.url })).rejects.toThrow(
      `at ${latest + 1}, this package knows ${latest}`,
    );
    expect(await schemaDump(database)).toEqual(before);
    expect(await versions(database)).toEqual([...everyVersion, latest + 1]);
  });

  test('an outbox from before the first release is refused, with what to do, and nothing is changed', async () => {
    const database = await emptyDatabase();
    await database.query(`create schema postcommit; create table postcommit.outbox_leases (name text primary key);
      create table postcommit.migrations (version integer primary key, name text not null, checksum text not null,
                                          applied_at timestamptz not null default now());
      insert into postcommit.migrations (version, name, checksum)
        select n, format('000%s_of_then', n), 'another' from generate_series(1, 7) n`);
    const before = await schemaDump(database);
    for (const dryRun of [true, false]) {
      const refused = migrate({ connectionString: database.url, dryRun });
      await expect(refused).rejects.toMatchObject({ code: 'POSTCOMMIT_E_MIGRATION_UNRELEASED' });
      await expect(refused).rejects.toThrow(/before its first release.*nothing was changed.*drop the schema/);
    }
    const { findings } = await createOutbox({ db: fromPg(database.pool) }).admin.doctor({ only: ['migrations'] });
    expect(findings).toMatchObject([
      { severity: 'critical', what: expect.stringContaining('before the first release') },
    ]);
    expect(await schemaDump(database)).toEqual(before);
  });

  test('a migration that fails changes nothing', async () => {
    const database = await emptyDatabase();
    await database.query('create schema postcommit; create table postcommit.outbox_relays (mine text)');
    await expect(migrate({ connectionString: database.url })).rejects.toMatchObject({ code: '42P07' });
    const rows = await database.query(`select relname from pg_class where relnamespace = 'postcommit'::regnamespace`);
    expect(rows).toEqual([{ relname: 'outbox_relays' }]);
  });

  test('a role that owns its schema but may create no other', async () => {
    const database = await emptyDatabase();
    const role = `owner_${randomUUID().slice(0, 8)}`;
    await database.query(`create role ${role} login password 'secret'`);
    try {
      await database.query(
        `create schema postcommit authorization ${role}; create schema by_hand authorization ${role}`,
      );
      const url = new URL(database.url);
      url.username = role;
      url.password = 'secret';
      expect((await migrate({ connectionString: url.href })).applied).toEqual(everything);
      const client = new pg.Client({ connectionString: url.href });
      await client.connect();
      await client.query(migrationSql({ schema: 'by_hand' }));
      await client.end();
      expect(await versions(database, 'by_hand')).toEqual(everyVersion);
      await expect(migrate({ connectionString: url.href, schema: 'third' })).rejects.toMatchObject({
        code: 'POSTCOMMIT_E_PERMISSION_DENIED',
      });
    } finally {
      await database.query(`drop owned by ${role} cascade; drop role ${role}`);
    }
  });

  test('a role that may only use the outbox finds nothing to do', async () => {
    const database = await emptyDatabase();
    const role = `service_${randomUUID().slice(0, 8)}`;
    await migrate({ connectionString: database.url });
    await database.query(`create role ${role} login password 'secret'`);
    try {
      await database.query(
        `grant usage on schema postcommit to ${role};
         grant select on postcommit.migrations, postcommit.outbox_routines to ${role}`,
      );
      const url = new URL(database.url);
      url.username = role;
      url.password = 'secret';
      expect((await migrate({ connectionString: url.href })).applied).toEqual([]);
    } finally {
      await database.query(`drop owned by ${role} cascade; drop role ${role}`);
    }
  });
});

test('a released migration that was changed after it was applied is refused', () => {
  const [first] = readMigrations() as [Migration];
  const second = { ...first, version: 2, name: '0002_more', checksum: 'released' };
  const apply = (checksum: string) => () => checkHistory([first, second], [first, { version: 2, checksum }]);
  expect(apply('released')).not.toThrow();
  expect(apply('another')).toThrowError(expect.objectContaining({ code: 'POSTCOMMIT_E_MIGRATION_CHANGED' }));
  expect(apply('another')).toThrow('number 2');
});

describe('what migrate refuses', () => {
  test.each([{ partitions: 'day' as const }, { notifyTrigger: true }, { notifyTrigger: false }])(
    'inboxOnly with %j',
    async (choice) => {
      const refused = { code: 'POSTCOMMIT_E_BAD_OPTION' };
      const options = { inboxOnly: true, ...choice };
      await expect(migrate({ connectionString: inject('serverUrl'), ...options })).rejects.toMatchObject(refused);
      expect(() => migrationSql(options)).toThrowError(expect.objectContaining(refused));
    },
  );

  const quickly = { timeoutMs: 5_000, what: 'it was refused' };

  test.each([
    '',
    'a\0b',
    'two\nlines',
    'x$postcommit$',
    'x'.repeat(64),
    '€'.repeat(22),
    'pg_mine',
    '\ud800',
    7 as never,
  ])('the schema name %j', async (schema) => {
    const refused = { code: 'POSTCOMMIT_E_BAD_SCHEMA_NAME' };
    await expect(migrate({ connectionString: inject('serverUrl'), schema })).rejects.toMatchObject(refused);
    expect(() => migrationSql({ schema })).toThrowError(expect.objectContaining(refused));
  });

  test.each([undefined, '', null])('%j as connection string: it would be some other database', async (given) => {
    await expect(migrate({ connectionString: given as never })).rejects.toMatchObject({
      code: 'POSTCOMMIT_E_BAD_OPTION',
      message: expect.stringContaining('It does not read DATABASE_URL itself'),
    });
  });

  test.each([undefined, null, 'postgres://host/shop'])('%j as options', async (given) => {
    await expect(migrate(given as never)).rejects.toMatchObject({
      code: 'POSTCOMMIT_E_BAD_OPTION',
      message: expect.stringContaining('migrate() takes an object of options'),
    });
  });

  test('a misspelt option: dryrun would migrate', async () => {
    const database = await createTestDatabase({ migrate: false });
    try {
      for (const [wrong, right] of [
        ['dryrun', 'dryRun'],
        ['notifytrigger', 'notifyTrigger'],
      ] as const) {
        const refused = {
          code: 'POSTCOMMIT_E_BAD_OPTION',
          message: expect.stringContaining(`There is no option ${wrong}. Did you mean ${right}?`),
        };
        await expect(migrate({ connectionString: database.url, [wrong]: true })).rejects.toMatchObject(refused);
      }
      await expect(migrate({ connectionString: database.url, dryRun: 'yes' as never })).rejects.toMatchObject({
        code: 'POSTCOMMIT_E_BAD_OPTION',
      });
      expect(() => migrationSql({ notifytrigger: true } as never)).toThrow('Did you mean notifyTrigger?');
      expect(await database.query(`select to_regnamespace('postcommit') as schema`)).toEqual([{ schema: null }]);
    } finally {
      await database.close();
    }
  });

  test('a server that is not there', async () => {
    // A port that was free a moment ago.
    const probe = createServer().listen(0, '127.0.0.1');
    await new Promise((ready) => probe.once('listening', ready));
    const { port } = probe.address() as { port: number };
    await new Promise((closed) => probe.close(closed));
    for (const host of ['127.0.0.1', 'localhost', 'no-such-host.invalid']) {
      const refused = migrate({ connectionString: `postgres://a:b@${host}:${port}/c` });
      await within(expect(refused).rejects.toMatchObject({ code: 'POSTCOMMIT_E_DATABASE_UNREACHABLE' }), quickly);
      await expect(refused).rejects.toThrow(/ECONNREFUSED|ENOTFOUND|EAI_AGAIN/);
    }
  });

  test('a wrong password, a user and a database that do not exist', async () => {
    const good = inject('serverUrl');
    const changes: ((url: URL) => void)[] = [
      (url) => (url.password = 'wrong'),
      (url) => (url.username = 'nobody_here'),
      (url) => (url.pathname = '/no_such_database'),
    ];
    for (const change of changes) {
      const url = new URL(good);
      change(url);
      const refused = migrate({ connectionString: url.href });
      await within(expect(refused).rejects.toMatchObject({ code: 'POSTCOMMIT_E_DATABASE_REFUSED' }), quickly);
      await refused.catch((error) => expect(error.message).not.toContain('wrong'));
    }
  });

  test('a relay on a database that was never migrated says which command to run', async () => {
    const database = await createTestDatabase({ migrate: false });
    const relay = createRelay({ connectionString: database.url, handlers: { other: { ignore: () => {} } } });
    await expect(relay.start()).rejects.toMatchObject({ code: 'POSTCOMMIT_E_MIGRATION_MISSING' });
    await expect(relay.start()).rejects.toThrow('npx postcommit migrate');
    await database.close();
  });
});
