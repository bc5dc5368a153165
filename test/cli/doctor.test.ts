import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { Scene } from '../admin/scene.ts';
import { createTestDatabase } from '../support/database.ts';
import { durableServer } from '../support/durable-server.ts';
import { until } from '../support/wait.ts';
import { runHere } from './fake-terminal.ts';
import { jsonError, runCli } from './run-cli.ts';

const server = durableServer();

describe('postcommit doctor', () => {
  let scene: Scene;
  const here = (...args: string[]) => runHere(['doctor', ...args], { env: { DATABASE_URL: scene.db.url } });

  beforeAll(async () => {
    scene = await Scene.create({ serverUrl: server.url });
  });
  afterAll(() => scene.close());

  it('of a healthy outbox: notes only, exit code 0', async () => {
    const { code, stdout, stderr } = await runCli(['doctor'], { env: { DATABASE_URL: scene.db.url } });
    expect({ code, stderr }).toEqual({ code: 0, stderr: '' });
    expect(stdout).toMatch(/^outbox in schema postcommit\n\n/);
    expect(stdout).toMatch(/\nok {2}server: PostgreSQL \d+/);
    expect(stdout).toMatch(/\nok {2}pooler: connected to PostgreSQL directly/);
    expect(stdout).toMatch(/\n\d notes?\n$/);
    expect(stdout).not.toMatch(/warning|critical/);
  });

  it('tells the worst first, with consequence and fix, and answers by its exit code', async () => {
    await scene.emit([{}]);
    await scene.db.query('alter table postcommit.outbox_shelf set (autovacuum_vacuum_threshold = 50)');
    const text = await here();
    expect(text.code).toBe(5);
    expect(text.stdout).toMatch(
      /schema postcommit\n\ncritical {2}relays: no relay is alive, 1 event due\n {2}Nothing is delivered\.\n {2}fix: npx postcommit relay\n\nwarning {2}autovacuum: /,
    );
    expect(text.stdout.indexOf('warning  ')).toBeLessThan(text.stdout.indexOf('\nnote  '));
    expect(text.stdout).toMatch(/1 critical, 1 warning, \d notes?\n$/);

    const json = await here('--json');
    expect(json).toMatchObject({ code: 5, stderr: '' });
    const { schema, worst, findings } = JSON.parse(json.stdout);
    expect({ schema, worst }).toEqual({ schema: 'postcommit', worst: 'critical' });
    expect(findings[0]).toEqual({
      check: 'relays',
      severity: 'critical',
      what: 'no relay is alive, 1 event due',
      consequence: 'Nothing is delivered.',
      fix: 'npx postcommit relay',
    });
    const warned = await here('--only', 'autovacuum,server');
    expect(warned.code).toBe(1);
    expect(warned.stdout).not.toContain('relays');
    expect((await here('--only', 'server, clock')).code).toBe(0);
    await scene.db.query('alter table postcommit.outbox_shelf set (autovacuum_vacuum_threshold = 5000)');
  });

  it('takes limits', async () => {
    const client = await scene.db.pool.connect();
    await client.query(`set application_name = 'report'; begin isolation level repeatable read; select 1`);
    const run = await until(
      async () => {
        const result = await here('--only', 'snapshots', '--snapshot-ms-max', '1');
        return result.code === 5 && result;
      },
      { what: 'the snapshot is too old' },
    );
    expect(run.stdout).toMatch(/critical {2}snapshots: session \d+ \(role postgres, application report,/);
    expect(run.stdout).toMatch(/fix: select pg_terminate_backend\(\d+\);/);
    await client.query('rollback; reset application_name');
    client.release();
    expect((await here('--only', 'backlog', '--oldest-pending-ms-max', '0')).code).toBe(5);
    expect((await here('--only', 'bloat,slots', '--dead-rows-max', '9', '--slot-bytes-max', '9')).stderr).toBe('');
  });

  it('of a database without an outbox: exit code 4, as every command', async () => {
    const db = await createTestDatabase({ migrate: false, serverUrl: server.url });
    const { code, stdout } = await runHere(['doctor'], { env: { DATABASE_URL: db.url } });
    expect(code).toBe(4);
    expect(stdout).toMatch(
      /\ncritical {2}migrations: this schema has no outbox\n.*\n {2}fix: npx postcommit migrate\n/,
    );
    await db.close();
  });

  it('of a database that is not there: exit code 3', async () => {
    const run = await runHere(['doctor', '--json'], { env: { DATABASE_URL: 'postgres://127.0.0.1:1/x' } });
    expect(run).toMatchObject({ code: 3, stdout: '' });
    expect(jsonError(run).code).toBe('POSTCOMMIT_E_DATABASE_UNREACHABLE');
  });

  it.each([
    [['--only', 'snapshot'], 'Did you mean snapshots?'],
    [['--only', 'server,'], 'Valid checks: server, settings,'],
    [['--snapshot-ms-max', '-1'], 'whole number from 0'],
  ])('refuses %j', async (args, what) => {
    const { code, stdout, stderr } = await here(...args);
    expect({ code, stdout }).toEqual({ code: 2, stdout: '' });
    expect(stderr).toContain(what);
  });
});
