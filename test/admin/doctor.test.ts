import pg from 'pg';
import { afterAll, afterEach, beforeAll, describe, expect, it, onTestFinished } from 'vitest';
import { expectedIndexes } from '../../src/admin/doctor/expected-indexes.ts';
import {
  type CheckName,
  createOutbox,
  type DoctorLimits,
  type Finding,
  fromPg,
  migrate,
  migrationSql,
} from '../../src/index.ts';
import { openCircuit } from '../../src/outbox/delivering/open-circuit.ts';
import { registerRelay } from '../../src/outbox/delivering/register-relay.ts';
import { RoleScenario } from '../database/role-scenario.ts';
import { createTestDatabase } from '../support/database.ts';
import { durableServer } from '../support/durable-server.ts';
import { startTransactionPooler } from '../support/transaction-pooler.ts';
import { until } from '../support/wait.ts';
import { Scene } from './scene.ts';

const server = durableServer();

describe('the doctor', () => {
  let scene: Scene;
  beforeAll(async () => {
    scene = await Scene.create({ serverUrl: server.url });
  });
  afterAll(() => scene.close());

  /** What a check finds. */
  async function look(check: CheckName, limits: Partial<DoctorLimits> = {}): Promise<Finding[]> {
    const { findings } = await scene.admin.doctor({ only: [check], limits, connectionString: scene.db.url });
    expect(findings.every((finding) => finding.check === check)).toBe(true);
    return findings;
  }
  const healthy = async (check: CheckName) => expect(await look(check)).toMatchObject([{ severity: 'ok' }]);

  it('finds nothing wrong with a fresh outbox', async () => {
    const { worst, findings } = await scene.admin.doctor({ connectionString: scene.db.url });
    expect(findings.filter(({ severity }) => severity === 'warning' || severity === 'critical')).toEqual([]);
    expect(worst).toBe('note');
    expect(new Set(findings.map(({ check }) => check)).size).toBe(26);
    expect(findings.map(({ what }) => what)).toContain('the role "postgres" is a superuser');
  });

  it('knows every index that the migrations make', async () => {
    const [row] = await scene.db.query(
      `select count(*)::integer as n from pg_index i join pg_class c on c.oid = i.indrelid
        where c.relnamespace = 'postcommit'::regnamespace`,
    );
    expect(row.n).toBe(expectedIndexes.length);
    await healthy('indexes');
  });

  it('examines an inbox that has no outbox', async () => {
    const db = await createTestDatabase({ migrate: false, serverUrl: server.url });
    onTestFinished(() => db.close());
    await migrate({ connectionString: db.url, inboxOnly: true });
    const { admin } = createOutbox({ db: fromPg(db.pool) });
    const { worst, findings } = await admin.doctor({ connectionString: db.url });
    expect(worst).not.toMatch(/warning|critical/);
    const whats = findings.map(({ check, what }) => `${check}: ${what}`);
    expect(whats).toContain('migrations: version 2: an inbox without an outbox, up to date');
    expect(whats).toContain('inbox: the inbox is empty');
    expect(whats.filter((what) => what.includes('not checked'))).toEqual([]);
    await db.query(
      `insert into postcommit.processed_events values ('mail', gen_random_uuid(), now() - interval '40 days')`,
    );
    expect((await admin.doctor({ only: ['inbox'] })).findings).toMatchObject([
      { severity: 'note', what: 'the oldest record of the inbox is 40 d old, and no relay removes old records' },
    ]);
  });

  it('notices that the inbox forgets events which can still be replayed', async () => {
    await healthy('inbox');
    await scene.db.query(`insert into postcommit.processed_events values ('mail', gen_random_uuid());
      insert into postcommit.outbox_maintenance (task, epoch, duration_ms, changed, keep_ms)
        values ('prune', 1, 1, 0, 'Infinity'), ('processed', 1, 1, 0, 86400000)`);
    expect(await look('inbox')).toMatchObject([
      {
        severity: 'warning',
        what: 'consumers remember processed events for 24 h, but events can be replayed for ever',
      },
    ]);
    await scene.db.query('truncate postcommit.processed_events, postcommit.outbox_maintenance');
  });

  it('notices a trigger that is off, a function that is gone, and seqs drawn ahead', async () => {
    await healthy('triggers');
    await scene.db.query(`alter table postcommit.outbox_events disable trigger outbox_events_enqueue;
      alter function postcommit.settle rename to unsettle; drop trigger outbox_shelf_requeue on postcommit.outbox_shelf;
      alter table postcommit.outbox_events alter seq set cache 50`);
    const found = await look('triggers');
    expect(found.map(({ severity, what }) => [severity, what])).toEqual([
      ['critical', 'the trigger outbox_events_enqueue on outbox_events is disabled'],
      ['critical', 'the trigger outbox_shelf_requeue on outbox_shelf is missing'],
      ['critical', 'missing functions: settle()'],
      ['critical', 'the sequence of seq has a cache of 50'],
    ]);
    for (const { fix } of found.filter(({ what }) => /disabled|cache/.test(what))) await scene.db.query(fix ?? '');
    await scene.db.query(`alter function postcommit.unsettle rename to settle;
      create trigger outbox_shelf_requeue after delete on postcommit.outbox_shelf
        referencing old table as left_for_queue for each statement execute function postcommit.note_rows_requeued();
      alter table postcommit.outbox_shelf enable always trigger outbox_shelf_requeue`);
    await healthy('triggers');
  });

  it('notices that the view outbox_status is gone, and its statement from `postcommit sql` brings it back', async () => {
    await scene.db.query('drop view postcommit.outbox_status');
    expect(await look('triggers')).toMatchObject([
      {
        severity: 'critical',
        what: 'the view outbox_status is missing',
        fix: expect.stringContaining('`npx postcommit sql`'),
      },
    ]);
    const [create] = /^create view "postcommit"\.outbox_status .*?;$/ms.exec(migrationSql()) ?? [''];
    await scene.db.query(create);
    await healthy('triggers');
  });

  it('names the session that holds the oldest snapshot, and ends it with the command it gives', async () => {
    const forgotten = new pg.Client({ connectionString: scene.db.url, application_name: 'nightly report' });
    forgotten.on('error', () => {});
    await forgotten.connect();
    onTestFinished(() => forgotten.end().catch(() => {}));
    await forgotten.query('begin isolation level repeatable read');
    await forgotten.query(`select 'a secret', count(*) from postcommit.outbox_events`);
    const { rows } = await forgotten.query('select pg_backend_pid() as pid');
    const [calm] = await look('snapshots');
    expect(calm).toMatchObject({ severity: 'ok', what: expect.stringContaining(`session ${rows[0].pid} `) });

    const found = await until(
      async () => {
        const [finding] = await look('snapshots', { snapshotMsMax: 1 });
        return finding?.severity === 'critical' && finding;
      },
      { what: 'the snapshot is ten times too old' },
    );
    expect(found.what).toMatch(
      /role postgres, application nightly report, from 127\.0\.0\.1, idle in transaction, query: select pg_backend_pid/,
    );
    expect(found.what).not.toContain('secret');
    expect(found.consequence).toContain('Vacuum');
    expect(found.fix).toBe(`select pg_terminate_backend(${rows[0].pid});`);
    await scene.db.query(found.fix ?? '');
    await until(async () => (await look('snapshots', { snapshotMsMax: 1 }))[0]?.severity === 'ok', {
      what: 'it is gone',
    });
  });

  it('finds an index that is missing, and the command that makes it again', async () => {
    await scene.db.query('drop index postcommit.outbox_queue_key_idx, postcommit.outbox_events_type_idx');
    const found = await look('indexes');
    expect(found).toMatchObject([
      {
        severity: 'critical',
        what: 'the index btree (key, seq) WHERE (key IS NOT NULL) on outbox_queue is missing',
        fix: 'create index concurrently on "postcommit"."outbox_queue" using btree (key, seq) WHERE (key IS NOT NULL);',
      },
      { severity: 'note', consequence: expect.stringContaining('--type') },
    ]);
    for (const { fix } of found) await scene.db.query(fix ?? '');
    await healthy('indexes');
    await scene.db.query('drop index postcommit.outbox_events_id_key');
    const [unique] = await look('indexes');
    expect(unique).toMatchObject({ severity: 'critical' });
    await scene.db.query(unique?.fix ?? '');
    await healthy('indexes');
  });

  it('finds an index that is invalid, and one that is not its own', async () => {
    await scene.emit([{}, {}]);
    const failing = scene.db.query('create unique index concurrently half on postcommit.outbox_queue (takeovers)');
    await expect(failing).rejects.toMatchObject({ code: '23505' });
    await scene.db.query('create index mine on postcommit.outbox_queue (claimed_by)');
    await scene.db.query('create index audit on postcommit.outbox_events using gin (payload)');
    const found = await look('indexes');
    expect(found).toMatchObject([
      { severity: 'warning', what: expect.stringMatching(/index half on outbox_queue is invalid/) },
      {
        severity: 'warning',
        what: expect.stringMatching(/index mine .* not created by Postcommit \(btree \(claimed_by\); never/),
      },
      { severity: 'note', what: expect.stringMatching(/index audit on outbox_events was not created/) },
    ]);
    for (const { fix } of found) await scene.db.query(fix ?? '');
    await healthy('indexes');

    // One of ours whose build was interrupted is built again, not dropped.
    await scene.db.query(
      `update pg_index set indisvalid = false where indexrelid = 'postcommit.outbox_shelf_seq_idx'::regclass`,
    );
    const [broken] = await look('indexes');
    expect(broken).toMatchObject({
      severity: 'warning',
      fix: 'reindex index concurrently "postcommit"."outbox_shelf_seq_idx";',
    });
    await scene.db.query(broken?.fix ?? '');
    await healthy('indexes');
  });

  it('finds autovacuum disabled or set otherwise for the queue', async () => {
    await scene.db.query('alter table postcommit.outbox_queue set (autovacuum_enabled = off)');
    await scene.db.query('alter table postcommit.outbox_shelf reset (autovacuum_vacuum_threshold)');
    const found = await look('autovacuum');
    expect(found).toMatchObject([
      { severity: 'critical', what: 'autovacuum is disabled for outbox_queue' },
      { severity: 'warning', what: expect.stringContaining('autovacuum_vacuum_threshold is not set') },
    ]);
    for (const { fix } of found) await scene.db.query(fix ?? '');
    await healthy('autovacuum');
  });

  it('finds dead rows in the queue that a snapshot keeps from vacuum', async () => {
    const holder = await scene.db.pool.connect();
    onTestFinished(() => holder.release(true));
    await holder.query('begin isolation level repeatable read');
    await holder.query('select 1');
    await scene.db.query(`insert into postcommit.outbox_queue (seq) select generate_series(1000000, 1020000)`);
    await scene.db.query('delete from postcommit.outbox_queue where seq >= 1000000');
    const found = await until(
      async () => {
        const [finding] = await look('bloat', { deadRowsMax: 1_000 });
        return finding?.severity === 'critical' && finding;
      },
      { what: 'the dead rows are counted' },
    );
    expect(found.what).toMatch(/^outbox_queue has 20,\d{3} dead rows for \d+ live ones?$/);
    await holder.query('commit');
    await scene.db.query(found.fix ?? '');
    await until(async () => (await look('bloat', { deadRowsMax: 1_000 }))[0]?.severity === 'ok', {
      what: 'they are gone',
    });
  });

  it('finds a backlog without a live relay, and relays that stopped their heartbeat', async () => {
    expect(await look('relays')).toMatchObject([
      {
        severity: 'critical',
        what: expect.stringMatching(/^no relay is alive, \d+ events due$/),
        fix: 'npx postcommit relay',
      },
    ]);
    expect(await look('backlog', { oldestPendingMsMax: 0 })).toMatchObject([{ severity: 'critical' }]);
    expect(await look('backlog')).toMatchObject([{ severity: 'ok' }]);
    const overdue = { name: 'silent', host: 'web-1', pid: 42, leaseMs: 1 };
    await registerRelay(scene.db.pool, 'postcommit', overdue);
    await until(async () => (await look('relays')).length === 2, { what: 'its lease has run out' });
    expect(await look('relays')).toMatchObject([
      { severity: 'critical' },
      { severity: 'warning', what: 'the relay silent (host web-1, pid 42) is overdue: its lease expired' },
    ]);
    await scene.db.query('delete from postcommit.outbox_relays');
    await scene.relay();
    await healthy('relays');
    await scene.untilStatus('PENDING', 0);
    await healthy('backlog');
  });

  it('finds dead letters, and destinations that are down', async () => {
    await scene.relay({ poison: 'block', name: 'blocking' });
    const [id] = await scene.emit([{ aggregate: ['order', 'poisoned'], payload: { does: 'reject' } }]);
    await scene.untilStatus('FAILED', 1);
    expect((await look('dead-letters'))[0]).toMatchObject({
      severity: 'warning',
      what: '1 unresolved dead letter',
      fix: 'npx postcommit dead list',
    });
    await scene.admin.discard({ ids: [id ?? ''] });
    await healthy('dead-letters');
    const shelved = await scene.emit([{ type: 'order.delayed', delayMs: 3_600_000 }]);
    await scene.shelve(shelved, ['kafka']);
    const sending = { name: 'sending', host: 'h', pid: 1, leaseMs: 3_600_000, targets: ['kafka'] };
    await registerRelay(scene.db.pool, 'postcommit', sending);
    const circuit = { destination: 'kafka', error: 'connect ECONNREFUSED', retryAfterMs: 0 };
    await openCircuit(scene.db.pool, 'postcommit', circuit, { probeDelayMs: 600_000, probeDelayMsMax: 600_000 });
    expect(await look('destinations')).toMatchObject([
      { severity: 'warning', what: 'the destination kafka is down (connect ECONNREFUSED), 1 event waits for it' },
    ]);
    await scene.admin.pauseDestination('kafka', { reason: 'upgrade' });
    expect(await look('destinations')).toMatchObject([
      { severity: 'note', what: 'the destination kafka is paused (upgrade), 1 event waits for it' },
    ]);
  });

  it('finds a replication slot without a consumer', async () => {
    const slot = `doctor_${process.pid}`;
    await scene.db.query(`select pg_create_logical_replication_slot($1, 'test_decoding')`, [slot]);
    try {
      const found = (await look('slots')).find(({ what }) => what.includes(slot));
      expect(found).toMatchObject({
        severity: 'warning',
        what: expect.stringMatching(/^the logical replication slot \S+ has no reader: the server keeps .* of WAL/),
        fix: expect.stringContaining(`select pg_drop_replication_slot('${slot}');`),
      });
    } finally {
      await scene.db.query('select pg_drop_replication_slot($1)', [slot]);
    }
  });

  it('finds migrations that are missing or were changed', async () => {
    const applied = await scene.db.query('select * from postcommit.migrations order by version');
    const [first, last] = [applied[0], applied.at(-1)];
    await scene.db.query('delete from postcommit.migrations where version = $1', [last.version]);
    expect(await look('migrations')).toMatchObject([{ severity: 'critical', fix: 'npx postcommit migrate' }]);
    await scene.db.query('insert into postcommit.migrations select ($1::postcommit.migrations).*', [
      `(${last.version},${last.name},changed,now)`,
    ]);
    expect(await look('migrations')).toMatchObject([
      { severity: 'critical', what: expect.stringContaining(`${last.version} (${last.name}) differs`) },
    ]);
    const setChecksum = 'update postcommit.migrations set checksum = $2 where version = $1';
    await scene.db.query(setChecksum, [first.version, 'changed']);
    expect(await look('migrations')).toMatchObject([
      { severity: 'critical', what: expect.stringContaining('before the first release') },
    ]);
    for (const { version, checksum } of [first, last]) await scene.db.query(setChecksum, [version, checksum]);
    await healthy('migrations');
  });

  it('finds functions that are missing or were changed, and leaves those of a newer package alone', async () => {
    const routines = await scene.db.query('select * from postcommit.outbox_routines');
    await scene.db.query(`delete from postcommit.outbox_routines where name = 'emit';
      update postcommit.outbox_routines set checksum = 'another' where name = 'settle';
      update postcommit.outbox_routines set checksum = 'another', package_version = '999.0.0' where name = 'replay'`);
    expect(await look('migrations')).toMatchObject([
      {
        severity: 'critical',
        what: 'functions differ from those of this package: emit, settle',
        fix: 'npx postcommit migrate',
      },
    ]);
    await scene.db.query('delete from postcommit.outbox_routines');
    await scene.db.query(
      `insert into postcommit.outbox_routines
       select * from json_populate_recordset(null::postcommit.outbox_routines, $1::text::json)`,
      [JSON.stringify(routines)],
    );
    await healthy('migrations');
  });

  it('notices a pooler in transaction mode', async () => {
    expect(await look('pooler')).toMatchObject([{ severity: 'ok', what: expect.stringContaining('without a pooler') }]);
    for (const sessions of [2, 1]) {
      const pooler = await startTransactionPooler(scene.db.url, sessions);
      const connectionString = pooler.url(scene.db.url);
      const { findings } = await scene.admin.doctor({ only: ['pooler'], connectionString });
      expect(findings).toMatchObject([{ severity: 'note', what: 'connected through a pooler in transaction mode' }]);
      await pooler.close();
    }
    const { findings } = await scene.admin.doctor({ only: ['pooler'] });
    expect(findings).toMatchObject([{ severity: 'note', what: expect.stringContaining('not checked') }]);
  });

  it('refuses what it does not know', async () => {
    const refused = { code: 'POSTCOMMIT_E_BAD_OPTION' };
    const typo = { limit: { deadRowsMax: 1 } };
    await expect(scene.admin.doctor(typo as never)).rejects.toMatchObject({
      ...refused,
      message: expect.stringContaining('doctor() has no option limit. Did you mean limits?'),
    });
    await expect(scene.admin.doctor({ only: ['snapshot' as CheckName] })).rejects.toThrow('Did you mean snapshots?');
    await expect(scene.admin.doctor({ only: ['x' as CheckName] })).rejects.toMatchObject(refused);
    await expect(scene.admin.doctor({ limits: { snapshotMsMax: -1 } })).rejects.toMatchObject(refused);
    await expect(scene.admin.doctor({ limits: { snapshots: 1 } as object })).rejects.toMatchObject(refused);
  });
});

describe('where the doctor may not look, or there is nothing to look at', () => {
  const open: { close(): Promise<unknown> }[] = [];
  afterEach(async () => {
    for (const each of open.splice(0)) await each.close();
  });

  it('says that there is no outbox, and examines the server', async () => {
    const db = await createTestDatabase({ migrate: false, serverUrl: server.url });
    open.push(db);
    const { admin } = createOutbox({ db: fromPg(db.pool), schema: 'No "such" schema' });
    const { worst, findings } = await admin.doctor();
    expect(worst).toBe('critical');
    expect(findings[0]).toMatchObject({ check: 'migrations', what: 'this schema has no outbox' });
    expect(findings.map(({ check }) => check)).toEqual(expect.arrayContaining(['server', 'settings', 'slots']));
  });

  it('works in a schema with a name that has to be quoted, partitioned', async () => {
    const db = await createTestDatabase({ migrate: false, serverUrl: server.url });
    open.push(db);
    const schema = 'Some "other" schema';
    await migrate({ connectionString: db.url, schema });
    const { admin } = createOutbox({ db: fromPg(db.pool), schema });
    await admin.partitions.convert('day');
    const wrong = async () =>
      (await admin.doctor()).findings.filter(({ severity }) => severity === 'warning' || severity === 'critical');
    expect(await wrong()).toEqual([]);

    await db.query(`drop index "Some ""other"" schema".outbox_events_p1_id_key`);
    const [missing] = await wrong();
    expect(missing).toMatchObject({ check: 'indexes', severity: 'critical' });
    await db.query(missing?.fix ?? '');
    await db.query(
      `alter table "Some ""other"" schema".outbox_events detach partition "Some ""other"" schema".outbox_events_p0`,
    );
    expect(await wrong()).toMatchObject([
      { check: 'partitions', severity: 'warning', what: 'the current partition is missing' },
      { check: 'partitions', severity: 'warning', what: expect.stringMatching(/^partition 0 is detached/) },
    ]);
    const [, detached] = await wrong();
    await db.query(detached?.fix ?? '');
    expect(await wrong()).toEqual([]);
  });

  it('notes what this role may not see, and does not fail', async () => {
    const db = await createTestDatabase({ serverUrl: server.url });
    open.push(db);
    const role = `blind_${process.pid}`;
    await db.query(`create role ${role} login password 'secret'`);
    open.unshift({ close: () => db.query(`drop owned by ${role}; drop role ${role}`) });
    const url = new URL(db.url);
    url.username = role;
    url.password = 'secret';
    const pool = new pg.Pool({ connectionString: url.href, max: 2 });
    open.unshift({ close: () => pool.end() });
    const { admin } = createOutbox({ db: fromPg(pool) });
    const { worst, findings } = await admin.doctor();
    expect(worst).toBe('warning');
    expect(findings[0]).toMatchObject({
      check: 'rights',
      what: expect.stringMatching(/may not emit, relay, read or use the inbox: it lacks USAGE on the schema/),
    });
    const unseen = findings.filter(({ what }) => what.startsWith('not checked, this role lacks a privilege'));
    expect(unseen.map(({ check }) => check).sort()).toEqual(
      [
        'backlog',
        'dead-letters',
        'destinations',
        'inbox',
        'maintenance',
        'migrations',
        'unqueued',
        'partitions',
        'queues',
        'relays',
        'schedules',
        'sequence',
      ].sort(),
    );
    expect(findings).toContainEqual(
      expect.objectContaining({
        check: 'snapshots',
        severity: 'note',
        fix: `grant pg_read_all_stats to "${role}";`,
      }),
    );
  });

  it('finds a right that was taken from the relay’s role', async () => {
    const scenario = await RoleScenario.create(server.url);
    open.push(scenario);
    const { admin } = createOutbox({ db: fromPg(scenario.pool('relay')) });
    const rights = async () => (await admin.doctor({ only: ['rights'] })).findings;
    expect(await rights()).toMatchObject([{ severity: 'ok', what: expect.stringContaining('privileges of a relay') }]);
    const role = `"${scenario.names.relay.replaceAll('"', '""')}"`;
    await scenario.db.query(`revoke update on postcommit.outbox_queue from ${role}`);
    await scenario.db.query(`revoke execute on function postcommit.rotate_partitions from ${role}`);
    expect(await rights()).toMatchObject([
      {
        severity: 'warning',
        what: expect.stringMatching(
          /lacks privileges of a relay: execute on rotate_partitions, update on outbox_queue$/,
        ),
        fix: expect.stringMatching(/^npx postcommit grants --relay /),
      },
      { severity: 'ok', what: expect.stringContaining('privileges of a reader') },
    ]);
  });
});
