import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest';
import type { EmbeddedPostgres } from '../../src/embedded/postgres-server.ts';
import { createOutbox, createRelay, fromPg, migrate, type Relay } from '../../src/index.ts';
import { runHere } from '../cli/fake-terminal.ts';
import { jsonError, projectFolder, runCli } from '../cli/run-cli.ts';
import { createTestDatabase, type TestDatabase } from '../support/database.ts';
import { quietPool } from '../support/quiet-pool.ts';
import { type StandbyPair, startStandbyPair } from '../support/standby.ts';
import { until } from '../support/wait.ts';

const readOnly = { code: 'POSTCOMMIT_E_READ_ONLY' };

describe.each([18, 14] as const)('a streaming standby, PostgreSQL %i', (version) => {
  let pair: StandbyPair;
  let db: TestDatabase;
  let database: string;
  const relays: Relay[] = [];
  beforeAll(async () => {
    pair = await startStandbyPair(version);
    db = await createTestDatabase({ serverUrl: pair.primary.connectionString });
    database = new URL(db.url).pathname.slice(1);
    await pair.caughtUp();
  });
  afterEach(async () => {
    await Promise.all(relays.splice(0).map((relay) => relay.stop()));
  });
  afterAll(async () => {
    await db?.pool.end();
    await pair?.close();
  });

  function makeRelay(connectionString: string, seen: unknown[] = []): Relay {
    const relay = createRelay({
      connectionString,
      leaseMs: 3_000,
      pollIntervalMs: 100,
      handlers: { x: { see: ({ payload }) => void seen.push(payload) } },
    });
    relays.push(relay);
    return relay;
  }

  async function emit(server: EmbeddedPostgres, ...payloads: number[]): Promise<void> {
    const pool = quietPool(pair.url(database, [server], ''));
    try {
      await createOutbox({ db: fromPg(pool), notify: false }).transaction((_tx, emit) =>
        emit(payloads.map((payload) => ({ type: 'x', aggregate: ['a', '1'] as const, payload }))),
      );
    } finally {
      await pool.end();
    }
  }

  const onlyStandby = () => pair.url(database, [pair.standby], '');
  const standbyTwice = () => pair.url(database, [pair.standby, pair.standby]);

  test.each(
    [
      ['status'],
      ['doctor'],
      ['events'],
      ['dead', 'list'],
      ['dead', 'retry', '--all', '--yes'],
      ['replay', '--type', 'x', '--yes'],
      ['requeue-unqueued', '--yes'],
      ['destinations'],
      ['destinations', 'pause', 'events'],
      ['destinations', 'resume', 'events'],
      ['forget', 'events', '--yes'],
      ['prune', '--older-than', '30d', '--yes'],
      ['partitions'],
      ['partitions', 'rotate'],
      ['partitions', 'convert', '--by', 'day', '--yes'],
      ['migrate'],
      ['migrate', '--dry-run'],
      ['relay'],
      ['relay', '--once'],
      ['demo', '--seconds', '1'],
    ].map((args) => ({ command: args.join(' '), args })),
  )('postcommit $command ends with exit code 3 and says so', async ({ args }) => {
    const cwd = projectFolder({ 'postcommit.config.ts': 'export default { handlers: { x: { see: () => {} } } };' });
    for (const url of [onlyStandby(), standbyTwice()]) {
      const result = await runHere([...args, '--json', '--database-url', url], { cwd });
      expect(jsonError(result)).toMatchObject(readOnly);
      expect(jsonError(result).message).toContain('standby');
      expect(result.code).toBe(3);
    }
  });

  test('a command that only reads works there when it is asked to', async () => {
    const url = pair.url(database, [pair.standby], '?target_session_attrs=any');
    const run = (...args: string[]) => runHere([...args, '--json', '--database-url', url]);
    expect((await run('status')).code).toBe(0);
    const { findings } = JSON.parse((await run('doctor')).stdout);
    expect(findings).toContainEqual(
      expect.objectContaining({
        check: 'server',
        severity: 'critical',
        what: expect.stringContaining('standby'),
        fix: expect.stringContaining('a:5432,b:5432/database?target_session_attrs=read-write'),
      }),
    );
    const replayed = await run('replay', '--type', 'x', '--yes');
    expect([replayed.code, jsonError(replayed).code]).toEqual([3, readOnly.code]);
    expect((await run('migrate')).code).toBe(3);
  });

  test('emit and the admin say what a standby is', async () => {
    const pool = quietPool(onlyStandby());
    try {
      const outbox = createOutbox({ db: fromPg(pool), notify: false });
      const event = { type: 'x', aggregate: ['a', '1'] as const, payload: 0 };
      await expect(outbox.transaction((_tx, emit) => emit(event))).rejects.toMatchObject(readOnly);
      await expect(outbox.admin.replay({ type: 'x' })).rejects.toMatchObject(readOnly);
    } finally {
      await pool.end();
    }
  });

  test('a list of hosts leads everything to the primary, wherever it stands in the list', async () => {
    for (const order of [
      [pair.primary, pair.standby],
      [pair.standby, pair.primary],
    ]) {
      const url = pair.url(database, order);
      const seen: unknown[] = [];
      await emit(pair.primary, 1, 2);
      expect(await makeRelay(url, seen).runOnce()).toMatchObject({ delivered: 2 });
      expect(seen).toEqual([1, 2]);
      expect(await migrate({ connectionString: url })).toMatchObject({ applied: [] });
      const doctor = await runHere(['doctor', '--json', '--only', 'server,pooler', '--database-url', url]);
      expect(doctor.stderr).toBe('');
      expect(JSON.parse(doctor.stdout)).toMatchObject({ worst: 'ok' });
    }
    const { code, stderr } = await runCli([
      'status',
      '--database-url',
      pair.url(database, [pair.standby, pair.primary]),
    ]);
    expect([code, stderr]).toEqual([0, '']);
  });

  test('a primary whose transactions are read-only is left for the next, and named', async () => {
    await db.query(`alter database "${database}" set default_transaction_read_only = on`);
    try {
      const listed = makeRelay(pair.url(database)).start();
      await expect(listed).rejects.toMatchObject(readOnly);
      await expect(listed).rejects.toThrow(
        `127.0.0.1:${pair.primary.port}: default_transaction_read_only is on; 127.0.0.1:${pair.standby.port}: the server is a standby`,
      );
      // One host, or target_session_attrs=primary: relays and commands begin their transactions READ WRITE.
      for (const url of [db.url, pair.url(database, undefined, '?target_session_attrs=primary')]) {
        expect(await makeRelay(url).runOnce()).toMatchObject({ delivered: 0 });
        expect(await migrate({ connectionString: url })).toMatchObject({ applied: [] });
      }
    } finally {
      await db.query(`begin read write; alter database "${database}" reset default_transaction_read_only; commit`);
    }
  });

  // The last one: afterwards the standby is the primary.
  test('a running relay follows a failover to the promoted standby', async () => {
    const seen: unknown[] = [];
    const relay = makeRelay(pair.url(database), seen);
    await relay.start();
    await emit(pair.primary, 1, 2);
    await until(() => seen.length === 2, { what: 'delivered on the primary' });
    await pair.caughtUp();
    await pair.primary.stop();
    await until(() => !relay.stats().connected, { what: 'the relay has lost its connections' });
    await expect(makeRelay(pair.url(database)).start()).rejects.toMatchObject({
      ...readOnly,
      message: expect.stringMatching(
        new RegExp(`${pair.primary.port}: .*ECONNREFUSED.*${pair.standby.port}: the server is a`),
      ),
    });
    await pair.promote();
    await emit(pair.standby, 3, 4);
    await until(() => seen.length === 4, { timeoutMs: 30_000, what: 'delivered on the promoted standby' });
    expect(seen).toEqual([1, 2, 3, 4]);
    expect((await runHere(['status', '--database-url', pair.url(database)])).code).toBe(0);
    await pair.standby.stop();
    const gone = await runHere(['status', '--json', '--database-url', pair.url(database)]);
    expect([gone.code, jsonError(gone).code]).toEqual([3, 'POSTCOMMIT_E_DATABASE_UNREACHABLE']);
  });
});
