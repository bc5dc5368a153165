import type pg from 'pg';
import { afterAll, beforeAll, describe, expect, onTestFinished, test } from 'vitest';
import type { EmbeddedPostgres } from '../../src/embedded/postgres-server.ts';
import { createOutbox, createRelay, fromPg, grantsSql, migrate, type Outbox } from '../../src/index.ts';
import { runHere } from '../cli/fake-terminal.ts';
import { createTestDatabase, type TestDatabase } from '../support/database.ts';
import { startTestPostgres } from '../support/postgres-server.ts';
import { until, within } from '../support/wait.ts';

const tables = [
  'outbox_events',
  'outbox_queue',
  'outbox_shelf',
  'outbox_deliveries',
  'outbox_failures',
  'outbox_dead_letters',
  'outbox_partitions',
  'outbox_settings',
].map((table) => `postcommit.${table}`);

const behind = { code: 'POSTCOMMIT_E_SEQUENCE_BEHIND' };

describe.each([18, 14] as const)('rows that were copied without their sequence, PostgreSQL %i', (version) => {
  let source: EmbeddedPostgres;
  let target: EmbeddedPostgres;
  beforeAll(async () => {
    const settings = { wal_level: 'logical' };
    [source, target] = await Promise.all([
      startTestPostgres({ version, settings }),
      startTestPostgres({ version, settings }),
    ]);
  });
  afterAll(async () => {
    await Promise.all([source?.stop(), target?.stop()]);
  });

  class Site {
    readonly db: TestDatabase;
    readonly outbox: Outbox<pg.PoolClient>;

    constructor(db: TestDatabase) {
      this.db = db;
      this.outbox = createOutbox<pg.PoolClient>({ db: fromPg(db.pool), notify: false });
    }

    static async on(server: EmbeddedPostgres): Promise<Site> {
      const db = await createTestDatabase({ serverUrl: server.connectionString });
      onTestFinished(() => db.close());
      return new Site(db);
    }

    /** One event of each aggregate with this payload. */
    async emit(payload: number): Promise<void> {
      await this.outbox.transaction((_tx, emit) =>
        emit(['a', 'b'].map((id) => ({ type: 'x', aggregate: ['thing', id] as const, payload }))),
      );
    }

    relay(seen: Record<string, unknown[]> = {}) {
      return createRelay({
        connectionString: this.db.url,
        maintenance: false,
        retry: { delaysMs: [] },
        handlers: {
          x: {
            see: ({ aggregate, payload }) => {
              if (payload === -1) throw new Error('no');
              seen[aggregate.id] = [...(seen[aggregate.id] ?? []), payload];
            },
          },
        },
      });
    }

    async deliver(): Promise<Record<string, unknown[]>> {
      const seen = {};
      await this.relay(seen).runOnce();
      return seen;
    }

    async findings(check: string) {
      const { findings } = await this.outbox.admin.doctor();
      return findings.filter((finding) => finding.check === check);
    }

    cli(...args: string[]) {
      return runHere(args, { env: { DATABASE_URL: this.db.url } });
    }

    /** As a copy of all rows leaves it. */
    resetSequence(): Promise<unknown> {
      return this.db.query(`select setval('postcommit.outbox_events_seq_seq', 1, false)`);
    }

    async seqs(): Promise<string[]> {
      return (await this.db.query('select seq::text from postcommit.outbox_events order by outbox_events.seq')).map(
        ({ seq }) => seq,
      );
    }
  }

  test('after logical replication: doctor finds it, relays refuse, migrate repairs it, and order holds', async () => {
    const [blue, green] = await Promise.all([Site.on(source), Site.on(target)]);
    for (const payload of [1, 2, 3]) await blue.emit(payload);
    await blue.deliver();
    await blue.db.query('delete from postcommit.outbox_events'); // Retention: low seqs are free to be drawn again.
    for (const payload of [4, 5]) await blue.emit(payload);
    const counts = async ({ db }: Site) => {
      const each = tables.map((table) => `(select count(*)::integer from ${table})`);
      return JSON.stringify(await db.query(`select array[${each.join(', ')}] as n`));
    };

    await blue.db.query(`create publication green for table ${tables.join(', ')}`);
    await green.db.query('alter table postcommit.outbox_events disable trigger outbox_events_enqueue');
    await green.db.query(`create subscription green connection '${blue.db.url}' publication green`);
    await blue.emit(6);
    await until(async () => (await counts(green)) === (await counts(blue)), { what: 'everything is replicated' });
    await green.db.query('drop subscription green');
    await green.db.query('alter table postcommit.outbox_events enable always trigger outbox_events_enqueue');

    expect(await green.findings('sequence')).toMatchObject([
      {
        severity: 'critical',
        what: expect.stringContaining('would get seq 1, but must get at least 13'),
        fix: 'npx postcommit migrate',
      },
    ]);
    expect((await green.cli('doctor', '--only', 'sequence')).code).toBe(5);
    await expect(green.relay().start()).rejects.toMatchObject(behind);
    await expect(green.relay().runOnce()).rejects.toThrow('npx postcommit migrate');

    const dryRun = await green.cli('migrate', '--dry-run');
    expect(dryRun.stdout).toContain('would move the sequence of the log up: the next event gets seq 13');
    expect(await green.findings('sequence')).toMatchObject([{ severity: 'critical' }]);
    const migrated = await green.cli('migrate', '--json');
    expect(JSON.parse(migrated.stdout)).toMatchObject({ applied: [], sequenceMovedTo: '13' });
    expect(JSON.parse((await green.cli('migrate', '--json')).stdout)).not.toHaveProperty('sequenceMovedTo');
    expect(await green.findings('sequence')).toMatchObject([{ severity: 'ok' }]);

    for (const payload of [7, 8]) await green.emit(payload);
    expect(await green.deliver()).toEqual({ a: [4, 5, 6, 7, 8], b: [4, 5, 6, 7, 8] });
    expect(await green.seqs()).toEqual(Array.from({ length: 10 }, (_, n) => String(n + 7)));
  });

  test.each(['outbox_queue', 'outbox_dead_letters', 'outbox_failures', 'outbox_deliveries', 'outbox_shelf'])(
    'seqs that are in %s only count too',
    async (table) => {
      const site = await Site.on(target);
      await site.emit(1);
      await site.emit(-1);
      if (table !== 'outbox_queue') await site.deliver();
      if (table === 'outbox_shelf') {
        await site.db.query(
          `insert into postcommit.outbox_shelf (seq, destination, attempts, takeovers) values (4, 'gone', 0, 0)`,
        );
      }
      if (table === 'outbox_deliveries')
        await site.db.query(`update postcommit.outbox_deliveries set seqs = '{[1,5)}'`);
      const others = tables.filter((name) => name !== `postcommit.${table}`).join(', ');
      await site.db.query(`truncate ${others}`);
      await site.resetSequence();
      expect(await migrate({ connectionString: site.db.url })).toMatchObject({ sequenceMovedTo: '5' });
      await site.emit(2);
      expect(await site.seqs()).toEqual(['5', '6']);
    },
  );

  test('an emit that meets a seq in use says what to do', async () => {
    const site = await Site.on(target);
    await site.emit(1);
    await site.resetSequence();
    await expect(site.emit(2)).rejects.toMatchObject(behind);
    await site.db.query('delete from postcommit.outbox_events');
    await site.resetSequence();
    await expect(site.emit(2)).rejects.toMatchObject(behind);
  });

  test('a partitioned log: the sequence continues in the open partition, and nothing is rotated before', async () => {
    const site = await Site.on(target);
    const { admin } = site.outbox;
    await site.emit(1);
    await admin.partitions.convert('day');
    await site.emit(2);
    await admin.partitions.rotate();
    const { partitions } = await admin.partitions.list();
    expect(partitions.map(({ number, state }) => `${number} ${state}`)).toEqual([
      '0 closed',
      '1 closed',
      '2 open',
      '3 spare',
      '4 spare',
    ]);
    await site.resetSequence();
    expect(await site.findings('sequence')).toMatchObject([{ severity: 'critical' }]);
    await expect(site.relay().start()).rejects.toMatchObject(behind);
    await expect(admin.partitions.rotate()).rejects.toThrow('behind its open partition');
    expect(await migrate({ connectionString: site.db.url })).toMatchObject({ sequenceMovedTo: '2000000000000' });
    expect(await site.findings('sequence')).toMatchObject([{ severity: 'ok' }]);
    await site.emit(3);
    expect(await site.deliver()).toEqual({ a: [1, 2, 3], b: [1, 2, 3] });
    expect(await site.seqs()).toEqual(['1', '2', '1000000000000', '1000000000001', '2000000000000', '2000000000001']);
    expect(await admin.partitions.rotate()).toMatchObject({ opened: 3 });
  });

  test('a copy that was never partitioned is repaired before it is', async () => {
    const site = await Site.on(target);
    for (const payload of [1, 2]) await site.emit(payload);
    await site.resetSequence();
    // It has had events, so it stays one table.
    expect(await migrate({ connectionString: site.db.url, partitions: 'day' })).toMatchObject({
      partitions: 'none',
      sequenceMovedTo: '5',
    });
    await site.emit(3);
    expect(await site.deliver()).toEqual({ a: [1, 2, 3], b: [1, 2, 3] });
  });

  test('a transaction that draws seqs meanwhile is waited for, so that the sequence never moves back', async () => {
    const site = await Site.on(target);
    for (let n = 0; n < 20; n++) await site.emit(n);
    await site.db.query('delete from postcommit.outbox_events where seq < 40');
    await site.db.query('delete from postcommit.outbox_queue');
    await site.resetSequence();
    const writer = await site.db.pool.connect();
    onTestFinished(() => writer.release(true));
    const emit = () => site.outbox.emit(writer, { type: 'x', aggregate: ['thing', 'a'], payload: 1 });
    await writer.query('begin');
    await emit();
    const migrated = migrate({ connectionString: site.db.url });
    const waiting = `select from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'`;
    await until(async () => (await site.db.query(waiting)).length > 0, { what: 'migrate waits for the writer' });
    await writer.query(`select setval('postcommit.outbox_events_seq_seq', 60)`);
    await emit();
    await writer.query('commit');
    expect(await migrated).not.toHaveProperty('sequenceMovedTo');
    await site.emit(1);
    expect(await site.seqs()).toEqual(['1', '40', '61', '62', '63']);
  });

  test('a transaction that has the log locked makes migrate give up, with an error that says so', async () => {
    const site = await Site.on(target);
    await site.emit(1);
    await site.emit(2);
    await site.db.query('delete from postcommit.outbox_events where seq < 4');
    await site.resetSequence();
    const writer = await site.db.pool.connect();
    onTestFinished(() => writer.release(true));
    await writer.query('begin; lock table postcommit.outbox_events in row exclusive mode');
    const refused = migrate({ connectionString: site.db.url });
    await within(expect(refused).rejects.toMatchObject({ code: 'POSTCOMMIT_E_LOG_IN_USE' }), {
      timeoutMs: 10_000,
      what: 'it gave up',
    });
    await writer.query('rollback');
    expect(await migrate({ connectionString: site.db.url })).toMatchObject({ sequenceMovedTo: '5' });
  });

  test('roles: a relay may look and not repair', async () => {
    const site = await Site.on(target);
    const role = `sequence_relay_${version}`;
    await site.db.query(grantsSql({ relay: role, create: true }));
    await site.db.query(`alter role ${role} password 'secret'`);
    onTestFinished(async () => void (await site.db.query(`drop owned by ${role} cascade; drop role ${role}`)));
    await site.emit(1);
    const url = new URL(site.db.url);
    url.username = role;
    url.password = 'secret';
    expect((await migrate({ connectionString: url.href })).sequenceMovedTo).toBeUndefined();
    await site.resetSequence();
    await expect(
      createRelay({ connectionString: url.href, handlers: { other: { ignore: () => {} } } }).start(),
    ).rejects.toMatchObject(behind);
    await expect(migrate({ connectionString: url.href })).rejects.toMatchObject({
      code: 'POSTCOMMIT_E_PERMISSION_DENIED',
    });
  });

  test('there is no other sequence that could lag', async () => {
    const site = await Site.on(target);
    const sequences = await site.db.query(
      `select relname as name from pg_class where relnamespace = 'postcommit'::regnamespace and relkind = 'S' order by 1`,
    );
    // outbox_requeues numbers nothing: relays compare it with what they read on the same server.
    expect(sequences).toEqual([{ name: 'outbox_events_seq_seq' }, { name: 'outbox_requeues' }]);
  });
});
