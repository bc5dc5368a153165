import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { createTestDatabase, type TestDatabase } from '../support/database.ts';
import { runHere } from './fake-terminal.ts';
import { projectFolder } from './run-cli.ts';

const stored = 'see: npx postcommit migrate';
const id = '0198c5a2-7d9e-7cc3-98c4-dc0c0c07398f';

describe('with flags that choose the outbox', () => {
  let db: TestDatabase;
  beforeAll(async () => {
    db = await createTestDatabase();
    await db.query(
      `insert into postcommit.outbox_events (id, aggregate_type, aggregate_id, event_type, payload, headers)
       values ($1, 'order', $2, $2, jsonb_build_object('p', $2::text), jsonb_build_object('h', $2::text))`,
      [id, stored],
    );
    await db.query(
      `with letter as (
         insert into postcommit.outbox_dead_letters (seq, reason, attempts, key, error)
         select seq, 'rejected', 1, key, $1 from postcommit.outbox_queue
         returning seq
       )
       insert into postcommit.outbox_failures (seq, relay, attempt, error) select seq, 1, 1, $1 from letter`,
      [stored],
    );
    await db.query('truncate postcommit.outbox_queue');
  });
  afterAll(() => db.close());

  const cwd = () =>
    projectFolder({
      'my config.js': `export default { outboxes: {
        billing: { connectionString: '${db.url}', handlers: {} }, shop: { connectionString: '${db.url}', handlers: {} } } }`,
    });
  const flags: [name: string, given: () => string[], repeated: () => string][] = [
    ['--schema', () => ['--schema', 'postcommit'], () => '--schema postcommit'],
    ['--database-url', () => ['--database-url', db.url], () => `--database-url ${shown(db.url)}`],
    [
      '--config and --outbox',
      () => ['--config', 'my config.js', '--outbox', 'billing'],
      () => "--config 'my config.js' --outbox billing",
    ],
  ];
  /** The URL of a test database may have a password, which is never printed. */
  function shown(url: string): string {
    const hidden = url.replace(/:[^:@/]+@/, ':***@');
    return hidden.includes('*') ? `'${hidden}'` : hidden;
  }
  const run = (args: string[]) => runHere(args, { cwd: cwd(), env: { DATABASE_URL: db.url } });

  it.each(flags)('stored texts are printed as they are, and commands have %s', async (_name, given, repeated) => {
    const event = await run([...given(), 'events', id]);
    expect(event).toMatchObject({ code: 0, stderr: '' });
    // Type, aggregate, header, payload and error.
    expect(event.stdout.match(/see: npx postcommit migrate/g)?.length).toBeGreaterThanOrEqual(5);
    expect(event.stdout).toContain(`\n  npx postcommit ${repeated()} dead retry ${id} `);
    expect((await run([...given(), 'dead', 'list'])).stdout.match(/see: npx postcommit migrate/g)).toHaveLength(3);
    expect((await run([...given(), 'status'])).stdout).toContain(`npx postcommit ${repeated()} dead list`);
    const refused = await run([...given(), 'partitions', 'drop', '1', '--yes']);
    expect(refused.stderr).toContain(`\`npx postcommit ${repeated()} partitions convert --by day\``);
  });

  it('the password of a URL is not printed', async () => {
    const role = `quoted_${new URL(db.url).pathname.slice(1)}`;
    await db.query(`create role "${role}" superuser login password 'p''secret'`);
    try {
      const url = db.url.replace(/\/\/[^@/]*@/, `//${role}:p'secret@`);
      const status = await run(['--database-url', url, 'status']);
      expect(status).toMatchObject({
        code: 0,
        stdout: expect.stringContaining(` '${url.replace("p'secret", '***')}' `),
      });
      expect(status.stdout).not.toContain('secret');
    } finally {
      await db.query(`drop role "${role}"`);
    }
  });
});
