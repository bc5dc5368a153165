import type { AddressInfo } from 'node:net';
import { createServer } from 'node:net';
import { afterAll, beforeAll, describe, expect, it, onTestFinished } from 'vitest';
import { codedDatabaseError } from '../../src/database/database-error.ts';
import type { TestDatabase } from '../support/database.ts';
import { createTestDatabase } from '../support/database.ts';
import { runHere } from './fake-terminal.ts';
import type { CliResult } from './run-cli.ts';
import { jsonError, projectFolder, runCli } from './run-cli.ts';

const password = 'hunter2secret';
const handlers = "handlers: { 'order.created': { log: () => {} } }";

function refused(result: CliResult, exitCode: number, code: string): string {
  expect(result, result.stderr).toMatchObject({ code: exitCode, stdout: '' });
  const error = jsonError(result);
  expect(error.code).toBe(code);
  expect(result.stderr).not.toContain(password);
  return error.message;
}

describe('a config file that cannot be used', () => {
  const env = { DATABASE_URL: 'postgres://127.0.0.1:1/x' };
  const relayWith = (files: Record<string, string>, ...args: string[]) =>
    runHere(['relay', '--json', ...args], { cwd: projectFolder(files), env });

  it('is refused with a code, the line and what to do', async () => {
    const [none, named, syntax, json, empty, typo] = await Promise.all([
      relayWith({}),
      relayWith({}, '--config', 'elsewhere.ts'),
      runCli(['relay', '--json'], {
        env,
        cwd: projectFolder({
          'postcommit.config.ts': `export default {\n  connectionString: 'postgres://app:${password}@db/shop' oops,\n};`,
        }),
      }),
      relayWith({ 'postcommit.config.json': `{\n  "connectionString": "postgres://app:${password}@db/shop",\n}` }),
      relayWith({ 'postcommit.config.ts': 'export const config = {};' }),
      relayWith({ 'postcommit.config.ts': `export default { ${handlers}, inFlightMaximum: 5 };` }),
    ]);
    expect(refused(none, 2, 'POSTCOMMIT_E_NO_CONFIG')).toContain('postcommit init');
    expect(refused(named, 2, 'POSTCOMMIT_E_NO_CONFIG')).toContain('elsewhere.ts');
    expect(refused(syntax, 2, 'POSTCOMMIT_E_BAD_CONFIG')).toMatch(/postcommit\.config\.ts: Syntax error at line 2/);
    expect(refused(json, 2, 'POSTCOMMIT_E_BAD_CONFIG')).toContain('postcommit.config.json:3');
    expect(refused(empty, 2, 'POSTCOMMIT_E_BAD_CONFIG')).toContain('no default export');
    expect(refused(typo, 2, 'POSTCOMMIT_E_BAD_CONFIG')).toContain('inFlightMax?');
  });

  it('is refused as text, too, with the value that is wrong', async () => {
    const cwd = projectFolder({ 'postcommit.config.ts': `export default { ${handlers}, leaseMs: 5 };` });
    const result = await runCli(['relay', '--database-url', `postgres://app:${password}@127.0.0.1:1/x`], { cwd });
    expect(result).toMatchObject({ code: 2, stdout: '' });
    expect(result.stderr).toMatch(/^error: .*leaseMs must be a whole number.*\[POSTCOMMIT_E_BAD_OPTION\]\n$/);
  });
});

describe('a database that cannot be used', () => {
  let db: TestDatabase;

  beforeAll(async () => {
    db = await createTestDatabase({ migrate: false });
  });
  afterAll(() => db.close());

  it('is refused with a code, without a long wait', async () => {
    const silent = createServer(() => {}).listen(0, '127.0.0.1');
    onTestFinished(() => void silent.close());
    const address = await new Promise<AddressInfo>((resolve) => {
      silent.once('listening', () => resolve(silent.address() as AddressInfo));
    });
    const cwd = projectFolder({ 'postcommit.config.ts': `export default { ${handlers} };` });
    const silentUrl = `postgres://app:${password}@127.0.0.1:${address.port}/shop`;
    const startedAt = performance.now();
    const [noUrl, status, relay, migrate, closed, unknown] = await Promise.all([
      runHere(['status', '--json'], { cwd }),
      ...[['status'], ['relay'], ['migrate']].map((args) =>
        runHere([...args, '--json', '--database-url', silentUrl], { cwd }),
      ),
      runHere(['status', '--json', '--database-url', `postgres://app:${password}@127.0.0.1:1/shop`], { cwd }),
      runCli(['relay', '--json', '--database-url', `postgres://app:${password}@nowhere.invalid/shop`], { cwd }),
    ]);
    expect(performance.now() - startedAt).toBeLessThan(15_000);
    expect(refused(noUrl as CliResult, 2, 'POSTCOMMIT_E_NO_DATABASE_URL')).toContain('DATABASE_URL');
    for (const result of [status, relay, migrate, closed, unknown]) {
      refused(result as CliResult, 3, 'POSTCOMMIT_E_DATABASE_UNREACHABLE');
    }
    expect(closed?.stderr).toContain('ECONNREFUSED');
  });

  it('is refused when it asks for a password and there is none', () => {
    const raised = new Error('SASL: SCRAM-SERVER-FIRST-MESSAGE: client password must be a string');
    expect(codedDatabaseError(raised)).toMatchObject({ code: 'POSTCOMMIT_E_DATABASE_REFUSED', cause: raised });
  });

  it('is refused when it rejects the user or has no tables', async () => {
    const cwd = projectFolder({ 'postcommit.config.ts': `export default { ${handlers} };` });
    const wrong = new URL(db.url);
    wrong.password = password;
    wrong.username = 'nobody_of_that_name';
    const noDatabase = new URL(db.url);
    noDatabase.pathname = '/no_such_database';
    const [denied, noTls, absent, status, relay, events] = await Promise.all([
      runHere(['status', '--json', '--database-url', wrong.href], { cwd }),
      runHere(['status', '--json', '--database-url', `${db.url}?ssl=true`], { cwd }),
      runHere(['migrate', '--json', '--database-url', noDatabase.href], { cwd }),
      ...[['status'], ['relay'], ['events', '7']].map((args) =>
        runHere([...args, '--json'], { cwd, env: { DATABASE_URL: db.url } }),
      ),
    ]);
    for (const result of [denied, noTls]) refused(result as CliResult, 3, 'POSTCOMMIT_E_DATABASE_REFUSED');
    expect(refused(absent as CliResult, 3, 'POSTCOMMIT_E_DATABASE_REFUSED')).toContain('no_such_database');
    for (const result of [status, relay, events]) {
      expect(refused(result as CliResult, 4, 'POSTCOMMIT_E_MIGRATION_MISSING')).toContain('npx postcommit migrate');
    }
  });
});
