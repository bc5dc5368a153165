import { expect, it, onTestFinished } from 'vitest';
import { createOutbox, fromPg } from '../../src/index.ts';
import { createTestDatabase } from '../support/database.ts';
import { orderCreated } from '../support/orders.ts';
import { runHere } from './fake-terminal.ts';
import { projectFolder, runCli } from './run-cli.ts';

it('every command connects with the connection config of the config file', async () => {
  const db = await createTestDatabase();
  onTestFinished(() => db.close());
  const { hostname, port, pathname, username, password } = new URL(db.url);
  const connection = `{
    host: '${hostname}',
    port: ${port},
    database: '${pathname.slice(1)}',
    user: '${decodeURIComponent(username)}',
    password: async () => '${decodeURIComponent(password)}',
    options: '-c work_mem=5MB',
  }`;
  const cwd = projectFolder({
    'postcommit.config.ts': `export default {
      connection: ${connection},
      handlers: { 'order.created': { note: () => {} } },
    };`,
  });
  await createOutbox({ db: fromPg(db.pool) }).transaction((_tx, emit) => emit(orderCreated('1')));

  const migrated = await runHere(['migrate', '--json'], { cwd });
  expect(JSON.parse(migrated.stdout)).toMatchObject({ applied: [] });
  const relayed = await runCli(['relay', '--once', '--json'], { cwd });
  expect(JSON.parse(relayed.stdout)).toMatchObject({ delivered: 1 });
  const status = await runHere(['status', '--json'], { cwd });
  expect(status.code).toBe(0);
  const doctor = await runHere(['doctor', '--only', 'pooler', '--json'], { cwd });
  expect(JSON.parse(doctor.stdout).findings).toMatchObject([{ check: 'pooler', severity: 'ok' }]);
  for (const { stdout, stderr } of [migrated, relayed, status, doctor]) {
    expect(stdout + stderr).not.toContain(decodeURIComponent(password));
  }
});
