import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { createTestDatabase, type TestDatabase } from '../support/database.ts';
import { settleQueue } from '../support/settle-queue.ts';
import { until } from '../support/wait.ts';
import { runHere } from './fake-terminal.ts';
import { jsonError, projectFolder, runCli, spawnCli } from './run-cli.ts';

let db: TestDatabase;

beforeAll(async () => {
  db = await createTestDatabase();
});

afterAll(() => db.close());

beforeEach(async () => {
  await db.query(
    `truncate postcommit.outbox_events, postcommit.outbox_queue, postcommit.outbox_shelf, postcommit.outbox_deliveries,
              postcommit.outbox_dead_letters, postcommit.processed_events restart identity`,
  );
});

/** Events emitted 40 days ago: delivered but for one in the queue, one on the shelf and one dead. */
async function fill(count: number): Promise<void> {
  await db.query(
    `insert into postcommit.outbox_events (aggregate_type, aggregate_id, event_type, payload, created_at)
     select 'thing', n::text, 'x', '1', now() - interval '40 days' from generate_series(1, $1) n`,
    [count],
  );
  await db.query('delete from postcommit.outbox_queue where seq in (2, 3)');
  await settleQueue(db, 'seq > 3');
  await db.query(
    `insert into postcommit.outbox_shelf (destination, seq, attempts, takeovers) values ('kafka', 2, 0, 0)`,
  );
  await db.query(
    `insert into postcommit.outbox_dead_letters (seq, reason, attempts, error) values (3, 'rejected', 1, 'no')`,
  );
  await db.query(
    `insert into postcommit.processed_events values ('mail', gen_random_uuid(), now() - interval '40 days'),
                                                    ('mail', gen_random_uuid(), now() - interval '20 days')`,
  );
}

const prune = (args: string[], options = {}) =>
  runCli(['prune', ...args], { env: { DATABASE_URL: db.url }, ...options });

async function events(): Promise<number> {
  return (await db.query('select count(*)::integer as n from postcommit.outbox_events'))[0].n;
}

describe('postcommit prune', () => {
  test('--dry-run counts and changes nothing; then it removes, and says what it kept and why', async () => {
    await fill(1_500);
    const would = await prune(['--older-than', '30d', '--dry-run']);
    expect(would).toMatchObject({ code: 0, stderr: '' });
    expect(would.stdout).toBe(
      [
        '1,497 events older than 30 d would be deleted',
        '  kept 1 not delivered yet  see: npx postcommit status',
        '  kept 1 waiting for a destination  see: npx postcommit destinations',
        '  kept 1 dead letters: retry or discard them  see: npx postcommit dead list',
        '1 row of processed_events older than 30 d would be deleted',
        '',
      ].join('\n'),
    );
    expect(await events()).toBe(1_500);

    const did = await prune(['--older-than', '30d', '--processed-older-than', '1w', '--yes', '--json']);
    expect(did).toMatchObject({ code: 0, stderr: '' });
    expect(JSON.parse(did.stdout)).toEqual({
      dryRun: false,
      olderThanMs: 30 * 86_400_000,
      processedOlderThanMs: 7 * 86_400_000,
      events: 1_497,
      kept: { queued: 1, shelved: 1, dead: 1, unqueued: 0 },
      processed: 2,
      partitions: [],
      keptPartitions: [],
    });
    expect(await events()).toBe(3);
  });

  test('takes its ages from the config file, and else keeps 30 days', async () => {
    await fill(10);
    const config = { maintenance: { keepEventsMs: 50 * 86_400_000, keepProcessedMs: 86_400_000 } };
    const cwd = projectFolder({ 'postcommit.config.json': JSON.stringify(config) });
    const configured = JSON.parse((await prune(['--json', '--dry-run'], { cwd })).stdout);
    expect(configured).toMatchObject({ olderThanMs: 50 * 86_400_000, events: 0, processed: 2 });
    expect(JSON.parse((await prune(['--json', '--dry-run'])).stdout)).toMatchObject({ events: 7, processed: 1 });
  });

  test('asks about what it would delete, and says what is kept forever', async () => {
    await fill(10);
    const dayMs = 86_400_000;
    const ask = (maintenance: string, typed: string) => {
      const config = `export default { maintenance: ${maintenance} };`;
      const cwd = projectFolder({ 'postcommit.config.mjs': config });
      return runHere(['--database-url', db.url, 'prune'], { cwd, typed });
    };
    for (const [maintenance, question] of [
      [
        `{ keepEventsMs: ${50 * dayMs} }`,
        'Delete delivered events older than 50 d and rows of processed_events older than 30 d?',
      ],
      ['{ keepProcessedMs: Infinity }', 'Delete delivered events older than 30 d?'],
      ['{ keepEventsMs: Infinity }', 'Delete rows of processed_events older than 30 d?'],
      [
        '{ keepEventsMs: Infinity, keepProcessedMs: Infinity }',
        'Events and rows of processed_events are kept forever. Delete only old records of relays?',
      ],
    ] as const) {
      const refused = await ask(maintenance, 'n\n');
      expect(refused).toMatchObject({ code: 2, stdout: '' });
      expect(refused.stderr).toContain(`${question} [y/N]`);
    }
    expect(await events()).toBe(10);

    const did = await ask('{ keepEventsMs: Infinity }', 'y\n');
    expect(did).toMatchObject({
      code: 0,
      stdout: 'events are kept forever\n1 row of processed_events older than 30 d deleted\n',
    });
    expect(await events()).toBe(10);
    const rest = await ask('{ keepProcessedMs: Infinity }', 'y\n');
    expect(rest.stdout).toMatch(/^7 events older than 30 d deleted\n/);
    expect(rest.stdout).toMatch(/\nrows of processed_events are kept forever\n$/);
  });

  test.each(['30', '-1d', 'soon', ''])('--older-than %j is a mistake', async (given) => {
    const result = await prune(['--older-than', given, '--json']);
    expect(result.code).toBe(2);
    expect(jsonError(result)).toMatchObject({ code: 'POSTCOMMIT_E_USAGE', message: expect.stringContaining('30d') });
  });

  test.each([
    ['SIGINT', 130],
    ['SIGTERM', 143],
    ['SIGHUP', 129],
  ] as const)(
    '%s ends it after a chunk: what is done stays done, and the exit code is %i',
    async (signal, code) => {
      await fill(100_000);
      const child = spawnCli(['--database-url', db.url, 'prune', '--older-than', '30d', '--yes', '--json']);
      let stdout = '';
      child.stdout?.setEncoding('utf8').on('data', (text) => {
        stdout += text;
      });
      const ended = new Promise<number | null>((resolve) => child.once('close', resolve));
      await until(async () => (await events()) < 100_000, { what: 'it has begun', timeoutMs: 30_000 });
      child.kill(signal);
      expect(await ended).toBe(code);
      const { events: removed, interrupted } = JSON.parse(stdout);
      expect(interrupted).toBe(true);
      expect(removed).toBeGreaterThan(0);
      expect(await events()).toBe(100_000 - removed);
    },
    60_000,
  );
});

describe('postcommit status', () => {
  test('shows which relay runs maintenance, and what failed', async () => {
    await db.query(`
      with relay as (
        insert into postcommit.outbox_relays (name, host, pid, lease_until)
        values ('mail-1', 'h', 7, now() + interval '1 hour') returning token)
      insert into postcommit.outbox_leadership (name, owner, lease_until)
      select 'maintenance', token, now() + interval '1 hour' from relay`);
    await db.query(`
      insert into postcommit.outbox_maintenance (task, epoch, duration_ms, changed, note, error, failures)
      values ('prune', 1, 5, 0, null, 'disk full', 3), ('drop', 1, 5, 0, 'partition 3 stays', null, 0), ('relays', 1, 1, 0, null, null, 0)`);
    const { stdout } = await runCli(['--database-url', db.url, 'status']);
    expect(stdout).toMatch(
      /maintenance {2}by relay mail-1, last run .*\n {2}drop: partition 3 stays\n {2}prune failed 3 times: disk full\n/,
    );
    const status = JSON.parse((await runCli(['--database-url', db.url, 'status', '--json'])).stdout);
    expect(status.maintenance).toMatchObject({
      leader: { name: 'mail-1' },
      tasks: [{ task: 'drop' }, { failures: 3 }, {}],
    });
  });
});
