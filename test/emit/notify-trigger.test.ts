import { randomUUID } from 'node:crypto';
import pg from 'pg';
import { describe, expect, onTestFinished, test } from 'vitest';
import { doorbellChannel } from '../../src/database/identifier.ts';
import {
  createOutbox,
  createRelay,
  fromPg,
  grantsSql,
  type MigrateOptions,
  migrate,
  migrationSql,
} from '../../src/index.ts';
import { createTestDatabase, type TestDatabase } from '../support/database.ts';
import { postgresVersions, serverUrlOf } from '../support/postgres-versions.ts';
import { quietPool } from '../support/quiet-pool.ts';
import { deferred, until, within } from '../support/wait.ts';

const awkward = `Wei"rd $& $$ :"channel" '; drop schema postcommit; --`;

const quoted = (schema: string) => pg.escapeIdentifier(schema);

const insertSql = (schema = 'postcommit', id = 'gen_random_uuid()') =>
  `insert into ${quoted(schema)}.outbox_events (id, aggregate_type, aggregate_id, event_type, payload)
   values (${id}, 'order', '42', 'inserted', '{}')`;

describe.each(postgresVersions)('the trigger that notifies relays, PostgreSQL %i', (version) => {
  const serverUrl = serverUrlOf(version);

  async function newOutbox(options: Omit<MigrateOptions, 'connectionString'> = {}): Promise<TestDatabase> {
    const database = await createTestDatabase({ migrate: false, serverUrl });
    onTestFinished(() => database.close());
    await migrate({ connectionString: database.url, ...options });
    return database;
  }

  /** Returns how many notifications relays got for what `work` did. */
  async function countNotifications(
    database: TestDatabase,
    work: () => Promise<unknown>,
    schema = 'postcommit',
  ): Promise<number> {
    const listener = new pg.Client({ connectionString: database.url });
    await listener.connect();
    const received: string[] = [];
    listener.on('notification', ({ payload }) => received.push(payload ?? ''));
    await listener.query(`listen ${doorbellChannel(schema)}`);
    await work();
    // Notifications come in the order of their commits.
    await database.query('select pg_notify($1, $2)', [doorbellChannel(schema), 'last']);
    await until(() => received.includes('last'), { what: 'the last notification came' });
    await listener.end();
    return received.length - 1;
  }

  test('a relay that polls once an hour gets each of 100 plain INSERTs at once', async () => {
    const database = await newOutbox({ notifyTrigger: true });
    let handled = deferred<string>();
    const relay = createRelay({
      connectionString: database.url,
      pollIntervalMs: 3_600_000,
      handlers: { inserted: { note: ({ id }) => handled.resolve(id) } },
    });
    onTestFinished(() => relay.stop());
    await relay.start();
    for (let i = 0; i < 100; i++) {
      handled = deferred<string>();
      const id = randomUUID();
      if (i % 2 === 0) await database.query(insertSql('postcommit', `'${id}'`));
      else await database.query(`select postcommit.emit('inserted', 'order', '42', '{}', id => $1)`, [id]);
      expect(await within(handled.promise, { timeoutMs: 10_000, what: `event ${i} was delivered` })).toBe(id);
    }
  });

  test('notifies once per transaction, and not for one that was rolled back', async () => {
    const database = await newOutbox({ notifyTrigger: true });
    const twice = `begin; ${insertSql()}; ${insertSql()}; commit`;
    expect(await countNotifications(database, () => database.query(twice))).toBe(1);
    const undone = `begin; ${insertSql()}; rollback`;
    expect(await countNotifications(database, () => database.query(undone))).toBe(0);
    const many = `insert into postcommit.outbox_events (aggregate_type, aggregate_id, event_type, payload)
      select 'order', n::text, 'inserted', '{}' from generate_series(1, 1000) n`;
    expect(await countNotifications(database, () => database.query(many))).toBe(1);
    const copying = `set session_replication_role = replica; ${insertSql()}; reset session_replication_role`;
    expect(await countNotifications(database, () => database.query(copying))).toBe(1);
  });

  test('a session turns it off for itself, and what emitters notify still arrives', async () => {
    const database = await newOutbox({ notifyTrigger: true });
    const pool = quietPool(database.url, { max: 2, options: '-c postcommit.notify_trigger=off' });
    onTestFinished(() => pool.end());
    expect(await countNotifications(database, () => pool.query(insertSql()))).toBe(0);
    const local = `begin; set local postcommit.notify_trigger = off; ${insertSql()}; commit`;
    expect(await countNotifications(database, () => database.query(local))).toBe(0);
    expect(await countNotifications(database, () => database.query(insertSql()))).toBe(1);
    const outbox = createOutbox({ db: fromPg(pool) });
    const emitted = () =>
      outbox.transaction((_tx, emit) => emit({ type: 'inserted', aggregate: ['order', 1], payload: 1 }));
    expect(await countNotifications(database, emitted)).toBe(1);
  });

  test('is installed, kept and removed by choice only', async () => {
    const database = await newOutbox();
    const connectionString = database.url;
    const notified = () => countNotifications(database, () => database.query(insertSql()));
    expect(await notified()).toBe(0);
    expect(await migrate({ connectionString, notifyTrigger: true, dryRun: true })).toMatchObject({
      notifyTrigger: 'installed',
    });
    expect(await notified()).toBe(0);
    expect(await migrate({ connectionString, notifyTrigger: true })).toMatchObject({ notifyTrigger: 'installed' });
    expect(await migrate({ connectionString, notifyTrigger: true })).toMatchObject({ notifyTrigger: 'kept' });
    expect(await migrate({ connectionString })).not.toHaveProperty('notifyTrigger');
    expect(await notified()).toBe(1);
    await database.query('alter table postcommit.outbox_events disable trigger outbox_events_notify');
    expect(await migrate({ connectionString, notifyTrigger: true })).toMatchObject({ notifyTrigger: 'installed' });
    expect(await notified()).toBe(1);
    expect(await migrate({ connectionString, notifyTrigger: false })).toMatchObject({ notifyTrigger: 'removed' });
    expect(await migrate({ connectionString, notifyTrigger: false })).toMatchObject({ notifyTrigger: 'kept' });
    expect(await notified()).toBe(0);
    await expect(migrate({ connectionString, notifyTrigger: 'yes' as never })).rejects.toMatchObject({
      code: 'POSTCOMMIT_E_BAD_OPTION',
    });
  });

  test('does not make writers wait behind a migration that cannot have its lock', async () => {
    const database = await newOutbox();
    const writer = await database.pool.connect();
    await writer.query('begin');
    await writer.query(insertSql());
    const refused = migrate({ connectionString: database.url, notifyTrigger: true });
    await expect(refused).rejects.toMatchObject({ code: 'POSTCOMMIT_E_LOG_IN_USE' });
    await writer.query('commit');
    writer.release();
    expect(await migrate({ connectionString: database.url, notifyTrigger: true })).toMatchObject({
      notifyTrigger: 'installed',
    });
  });

  test('stays with a log that is converted to partitions, rotated, and new', async () => {
    const converted = await newOutbox({ notifyTrigger: true });
    await converted.query(insertSql());
    const { admin } = createOutbox({ db: fromPg(converted.pool) });
    await admin.partitions.convert('day');
    expect(await countNotifications(converted, () => converted.query(insertSql()))).toBe(1);
    await admin.partitions.rotate();
    expect(await countNotifications(converted, () => converted.query(insertSql()))).toBe(1);
    expect((await admin.doctor({ only: ['triggers', 'partitions'] })).worst).toBe('ok');
    const connectionString = converted.url;
    expect(await migrate({ connectionString, notifyTrigger: true })).toMatchObject({ notifyTrigger: 'kept' });
    expect(await migrate({ connectionString, notifyTrigger: false })).toMatchObject({ notifyTrigger: 'removed' });
    expect(await countNotifications(converted, () => converted.query(insertSql()))).toBe(0);

    const partitioned = await newOutbox({ notifyTrigger: true, partitions: 'day' });
    expect(await countNotifications(partitioned, () => partitioned.query(insertSql()))).toBe(1);
  });

  test('works for a schema of any name, by migration and as printed SQL', async () => {
    const migrated = await newOutbox({ schema: awkward, notifyTrigger: true });
    expect(await countNotifications(migrated, () => migrated.query(insertSql(awkward)), awkward)).toBe(1);
    const printed = await createTestDatabase({ migrate: false, serverUrl });
    onTestFinished(() => printed.close());
    for (const after of [0, 2]) await printed.query(migrationSql({ schema: awkward, notifyTrigger: true, after }));
    expect(await countNotifications(printed, () => printed.query(insertSql(awkward)), awkward)).toBe(1);
    await printed.query(migrationSql({ schema: awkward, after: 2 }));
    expect(await countNotifications(printed, () => printed.query(insertSql(awkward)), awkward)).toBe(1);
    await printed.query(migrationSql({ schema: awkward, after: 2, notifyTrigger: false }));
    expect(await countNotifications(printed, () => printed.query(insertSql(awkward)), awkward)).toBe(0);
  });

  test('notifies for a role that may only insert', async () => {
    const database = await newOutbox({ notifyTrigger: true });
    const role = `emitter_${randomUUID().slice(0, 8)}`;
    await database.query(`create role ${role}`);
    await database.query(grantsSql({ emitter: role }));
    const client = await database.pool.connect();
    await client.query(`set role ${role}`);
    expect(await countNotifications(database, () => client.query(insertSql()))).toBe(1);
    await expect(
      client.query(
        'create table mine (); create trigger t after insert on mine execute function postcommit.notify_trigger()',
      ),
    ).rejects.toMatchObject({ code: '42501' });
    await client.query('reset role');
    client.release();
    await database.query(`drop owned by ${role}; drop role ${role}`);
  });

  test('the doctor expects nothing of it, unless it is there and does not fire', async () => {
    const database = await newOutbox({ notifyTrigger: true });
    const { admin } = createOutbox({ db: fromPg(database.pool) });
    expect((await admin.doctor({ only: ['triggers'] })).findings).toMatchObject([
      { severity: 'ok', what: 'triggers, functions, the view and the sequence match the migrations' },
    ]);
    await database.query('alter table postcommit.outbox_events disable trigger outbox_events_notify');
    expect((await admin.doctor({ only: ['triggers'] })).findings).toMatchObject([
      { severity: 'warning', what: 'the trigger outbox_events_notify on outbox_events is disabled' },
    ]);
    await database.query('drop trigger outbox_events_notify on postcommit.outbox_events');
    expect((await admin.doctor({ only: ['triggers'] })).worst).toBe('ok');
  });

  test('the documented channel is the one that relays listen on', async () => {
    const database = await newOutbox({ schema: awkward });
    const [row] = await database.query<{ channel: string }>(
      `select 'postcommit_' || left(encode(sha256(convert_to($1, 'UTF8')), 'hex'), 16) as channel`,
      [awkward],
    );
    expect(row?.channel).toBe(doorbellChannel(awkward));
    expect(doorbellChannel('postcommit')).toBe('postcommit_50dbf08a68fcc1af');
  });
});
