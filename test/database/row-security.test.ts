import { randomBytes, randomUUID } from 'node:crypto';
import { afterEach, beforeEach, describe, expect, onTestFinished, test } from 'vitest';
import { createOutbox, createRelay, fromPg, migrate, type Relay, type RelayOptions } from '../../src/index.ts';
import { createTestDatabase } from '../support/database.ts';
import { postgresVersions, serverUrlOf } from '../support/postgres-versions.ts';
import { quietPool } from '../support/quiet-pool.ts';
import { recordServer } from '../support/servers-used.ts';
import { until } from '../support/wait.ts';
import { RoleScenario } from './role-scenario.ts';

describe.each(postgresVersions)('row-level security on PostgreSQL %i', (version) => {
  const serverUrl = serverUrlOf(version);
  let scenario: RoleScenario;

  beforeEach(async () => {
    scenario = await RoleScenario.create(serverUrl);
    const [row] = await scenario.db.query('show server_version');
    recordServer(`PostgreSQL ${row.server_version}`);
  });
  afterEach(async () => {
    await Promise.all(relays.splice(0).map((relay) => relay.stop()));
    await scenario.close();
  });

  const relays: Relay[] = [];

  const delivered: string[] = [];
  const logged: string[] = [];
  const keep = (fields: object | string, message?: string) => void logged.push(JSON.stringify([fields, message]));
  const logger = { debug: () => {}, info: () => {}, warn: keep, error: keep };

  function relayOf(options: Partial<RelayOptions> = {}) {
    delivered.length = 0;
    logged.length = 0;
    const relay = createRelay({
      connectionString: scenario.url('relay'),
      pollIntervalMs: 50,
      logger,
      handlers: { made: { keep: async (event) => void delivered.push(event.aggregate.id) } },
      ...options,
    });
    relays.push(relay);
    return relay;
  }

  async function emit(...ids: string[]): Promise<void> {
    const outbox = createOutbox({ db: fromPg(scenario.db.pool) });
    const events = ids.map((id) => ({ type: 'made', aggregate: ['thing', id] as const, payload: {} }));
    await outbox.transaction((_tx, emitInside) => emitInside(events));
  }

  const count = async (table: string): Promise<number> =>
    (await scenario.db.query(`select count(*)::integer as n from postcommit.${table}`))[0].n;
  const secure = (table: string) => scenario.db.query(`alter table postcommit.${table} enable row level security`);
  const open = (table: string) => scenario.db.query(`alter table postcommit.${table} disable row level security`);

  test.each(['outbox_events', 'outbox_queue', 'outbox_relays'])(
    'a relay does not start while rows of %s may be hidden from it',
    async (table) => {
      await emit('1');
      await secure(table);
      const relay = relayOf();
      const refused = {
        code: 'POSTCOMMIT_E_ROW_SECURITY',
        detail: `The role is ${scenario.names.relay}; tables: postcommit.${table}.`,
      };
      await expect(relay.start()).rejects.toMatchObject(refused);
      await expect(relay.runOnce()).rejects.toMatchObject(refused);
      expect(await count('outbox_dead_letters')).toBe(0);
      expect(await count('outbox_queue')).toBe(1);

      // A policy that shows everything is not told from one that hides something.
      await scenario.db.query(`create policy all_rows on postcommit.${table} using (true)`);
      await expect(relay.start()).rejects.toMatchObject(refused);

      const role = `"${scenario.names.relay.replaceAll('"', '""')}"`;
      await scenario.db.query(`alter role ${role} bypassrls`);
      await relay.runOnce();
      expect(delivered).toEqual(['1']);
    },
  );

  test.each(['outbox_events', 'outbox_queue'])(
    'an event is not lost when rows of %s are hidden from a relay that runs',
    async (table) => {
      const relay = relayOf();
      await relay.start();
      await emit('before');
      await until(async () => delivered.length === 1 && (await count('outbox_queue')) === 0, {
        what: 'the first is settled',
      });
      await secure(table);
      await emit('hidden', 'hidden too');
      await until(() => logged.some((line) => /may hide rows/.test(line)), {
        what: 'the relay reports why it claims nothing',
      });
      expect(await count('outbox_dead_letters')).toBe(0);
      expect(await count('outbox_queue')).toBe(2);
      await open(table);
      await until(() => delivered.length === 3, { what: 'the others are delivered' });
      expect(delivered.slice(1).sort()).toEqual(['hidden', 'hidden too']);
      expect(await count('outbox_dead_letters')).toBe(0);
    },
  );

  test('a policy on the partitioned log counts, one on a partition does not', async () => {
    await createOutbox({ db: fromPg(scenario.db.pool) }).admin.partitions.convert('day');
    await emit('1');
    const [{ leaf }] = await scenario.db.query(`select tableoid::regclass::text as leaf from postcommit.outbox_events`);
    await scenario.db.query(`alter table ${leaf} enable row level security`);
    const relay = relayOf();
    await relay.runOnce();
    expect(delivered).toEqual(['1']);
    await secure('outbox_events');
    await expect(relay.runOnce()).rejects.toMatchObject({
      code: 'POSTCOMMIT_E_ROW_SECURITY',
      detail: `The role is ${scenario.names.relay}; tables: postcommit.outbox_events.`,
    });
  });

  test('an operator gets an error that the backlog may be hidden, and nothing changes', async () => {
    await emit('1');
    await secure('outbox_queue');
    const { admin } = createOutbox({ db: fromPg(scenario.pool('relay')) });
    const refused = { code: 'POSTCOMMIT_E_ROW_SECURITY' };
    await expect(admin.counts()).rejects.toMatchObject(refused);
    await expect(admin.replay({ all: true })).rejects.toMatchObject(refused);
    await expect(admin.requeueUnqueued()).rejects.toMatchObject(refused);
    expect(await count('outbox_queue')).toBe(1);
    await open('outbox_queue');
    expect(await admin.counts()).toMatchObject({ pending: 1 });
  });

  test('doctor names the roles from which rows may be hidden, whichever role runs it', async () => {
    const doctorOf = (pool: ReturnType<RoleScenario['pool']>) =>
      createOutbox({ db: fromPg(pool) }).admin.doctor({ only: ['row-security', 'backlog'] });
    const { findings: calm } = await doctorOf(scenario.db.pool);
    expect(calm.map(({ check, severity }) => [check, severity])).toEqual([
      ['row-security', 'ok'],
      ['backlog', 'ok'],
    ]);

    await secure('outbox_queue');
    for (const pool of [scenario.db.pool, scenario.pool('reader'), scenario.pool('relay')]) {
      const { worst, findings } = await doctorOf(pool);
      expect(worst).toBe('critical');
      const named = findings.filter(({ check, severity }) => check === 'row-security' && severity !== 'ok');
      expect(named.map(({ severity, what }) => [severity, what])).toEqual([
        [
          'critical',
          `row-level security applies to the role ${JSON.stringify(scenario.names.relay)} (relay) on postcommit.outbox_queue`,
        ],
        [
          'warning',
          `row-level security applies to the role ${JSON.stringify(scenario.names.reader)} (reader) on postcommit.outbox_queue`,
        ],
      ]);
    }
    // What cannot be known is not told as if it were.
    const { findings } = await doctorOf(scenario.pool('reader'));
    expect(findings.find(({ check }) => check === 'backlog')).toMatchObject({
      severity: 'note',
      what: expect.stringContaining('not checked, rows may be hidden from this role'),
    });

    for (const { check, fix = '' } of findings) if (check === 'row-security') await scenario.db.query(fix);
    expect((await doctorOf(scenario.pool('reader'))).worst).toBe('ok');
    await relayOf().runOnce();
  });

  test('every function that decides by what it reads refuses to read some of the rows', async () => {
    const rows = await scenario.db.query<{ name: string }>(
      `select distinct proname as name from pg_proc
        where pronamespace = 'postcommit'::regnamespace and not coalesce(proconfig, '{}') @> '{row_security=off}' order by 1`,
    );
    const emitting = ['close_gates', 'emit', 'emit_once', 'emit_one', 'emit_one_if_open', 'enqueue', 'lock_keys'];
    const consuming = ['record_processed']; // Only writes: a conflict counts whether or not its row is visible.
    // Called by functions that have the setting.
    const inside = ['check_partition', 'create_partition', 'sample_queue'];
    const readNoRows = [
      ...[
        'check_event',
        'copies_of',
        'create_leaf',
        'grants_of',
        'find_partitioning_obstacle',
        'has_partition',
        'is_attached',
        'key_hash',
      ],
      ...['note_requeues', 'note_rows_requeued', 'note_truncated', 'notify_trigger', 'plain_payload', 'queue_lock'],
      ...['require_read_committed', 'server_run', 'server_stamp'],
      ...['unconstrain_log', 'usable_low_water', 'validate_log', 'dependent_views'],
    ];
    expect(rows.map(({ name }) => name)).toEqual([...emitting, ...consuming, ...inside, ...readNoRows].sort());
  });

  test('an emitter obeys the policies of the log', async () => {
    const outbox = createOutbox({ db: fromPg(scenario.pool('emitter')) });
    const event = (id: string) => ({ type: 'made', aggregate: ['thing', id] as const, payload: {} });
    await scenario.db.query(`alter table postcommit.outbox_events enable row level security;
      create policy own on postcommit.outbox_events for insert with check (aggregate_id like 'mine%')`);
    await outbox.transaction((_tx, emitInside) => emitInside([event('mine 1'), event('mine 2')]));
    await outbox.transaction((_tx, emitInside) => emitInside(event('mine 3')));
    await outbox.transaction((tx) => outbox.emitOnce(tx, { ...event('mine 4'), id: randomUUID() }));
    await expect(outbox.transaction((_tx, emitInside) => emitInside(event('yours')))).rejects.toMatchObject({
      code: 'POSTCOMMIT_E_PERMISSION_DENIED',
    });
    expect(await count('outbox_queue')).toBe(4);
  });
});

test('nothing is pruned while policies are forced on the owner, as which pruning runs', async () => {
  const db = await createTestDatabase({ migrate: false });
  const owner = `owner_${randomBytes(4).toString('hex')}`;
  await db.query(`create role ${owner} login password 'secret'; grant ${owner} to current_user`);
  onTestFinished(async () => {
    await db.query(`drop owned by ${owner} cascade; drop role ${owner}`);
    await db.close();
  });
  const [{ name }] = await db.query('select current_database() as name');
  await db.query(`grant create on database "${name}" to ${owner}`);
  const url = Object.assign(new URL(db.url), { username: owner, password: 'secret' }).href;
  await migrate({ connectionString: url });
  const pool = quietPool(url, { max: 2 });
  onTestFinished(() => pool.end());
  const outbox = createOutbox({ db: fromPg(pool) });
  const id = randomUUID();
  await outbox.transaction((_tx, emit) => emit({ id, type: 'made', aggregate: ['thing', 1], payload: {} }));
  const relay = createRelay({ connectionString: url, maintenance: false, handlers: { made: { keep: () => {} } } });
  await relay.runOnce();
  await db.query(`update postcommit.outbox_events set created_at = now() - interval '90 days'`);
  await outbox.admin.replay({ ids: [id] });

  // Hidden from its owner, the event in the queue looks delivered: it was, before the replay.
  await db.query('alter table postcommit.outbox_queue enable row level security, force row level security');
  const refused = { code: 'POSTCOMMIT_E_ROW_SECURITY' };
  await expect(outbox.admin.prune({ olderThanMs: 86_400_000 })).rejects.toMatchObject(refused);
  await expect(relay.runOnce()).rejects.toMatchObject(refused);
  await db.query('alter table postcommit.outbox_events enable row level security, force row level security');
  await expect(
    outbox.transaction((tx) => outbox.emitOnce(tx, { id, type: 'made', aggregate: ['thing', 1], payload: {} })),
  ).rejects.toMatchObject(refused);
  await db.query('alter table postcommit.migrations enable row level security, force row level security');
  await expect(migrate({ connectionString: url })).rejects.toMatchObject(refused);
  expect(await db.query('select id from postcommit.outbox_events')).toEqual([{ id }]);

  const asked = createOutbox({ db: fromPg(db.pool) }).admin;
  const { findings } = await asked.doctor({ only: ['row-security'] });
  expect(findings).toMatchObject([{ severity: 'warning', what: expect.stringContaining(`"${owner}" (owner)`) }]);
  await db.query(findings[0]?.fix ?? '');
  expect(await outbox.admin.prune({ olderThanMs: 86_400_000 })).toMatchObject({ events: 0, kept: { queued: 1 } });
  await relay.runOnce();
});
