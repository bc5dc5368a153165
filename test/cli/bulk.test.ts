import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { createOutbox, fromPg } from '../../src/index.ts';
import { createTestDatabase, type TestDatabase } from '../support/database.ts';
import { settleQueue } from '../support/settle-queue.ts';
import { until } from '../support/wait.ts';
import { runHere } from './fake-terminal.ts';
import { spawnCli } from './run-cli.ts';

let db: TestDatabase;
beforeEach(async () => {
  db = await createTestDatabase();
});
afterEach(() => db.close());

async function fill(count: number): Promise<void> {
  await db.query(
    `insert into postcommit.outbox_events (aggregate_type, aggregate_id, event_type, payload, created_at)
     select 'order', i::text, 'x', '{}', now() - interval '40 days' from generate_series(1, $1) i`,
    [count],
  );
}

async function fillDead(count: number): Promise<void> {
  await fill(count);
  await db.query(
    `insert into postcommit.outbox_dead_letters (seq, reason, attempts, key, error)
     select seq, 'rejected', 1, key, 'no' from postcommit.outbox_queue`,
  );
  await db.query('truncate postcommit.outbox_queue');
}

async function fillDelivered(count: number): Promise<void> {
  await fill(count);
  await settleQueue(db);
}

async function fillDelayed(count: number): Promise<void> {
  await fill(count);
  await db.query(`update postcommit.outbox_queue set available_at = now() + interval '1 day'`);
}

async function count(table: string): Promise<number> {
  return (await db.query(`select count(*)::integer as n from postcommit.${table}`))[0].n;
}

/** Runs a command in a process of its own, and sends it a signal, by default Ctrl-C, when it has begun to change something. */
async function interrupt(args: string[], hasBegun: () => Promise<boolean>, signal: NodeJS.Signals = 'SIGINT') {
  const child = spawnCli(['--database-url', db.url, ...args]);
  const written = { stdout: '', stderr: '' };
  for (const name of ['stdout', 'stderr'] as const) {
    child[name]?.setEncoding('utf8').on('data', (text) => {
      written[name] += text;
    });
  }
  const ended = new Promise<number | null>((resolve) => child.once('close', resolve));
  await until(hasBegun, { what: 'it has begun', timeoutMs: 30_000 });
  child.kill(signal);
  return { code: await ended, ...written };
}

describe('an operation that does not come to its end', () => {
  test('ends a retry after a chunk, says how much was done, and the same command continues', async () => {
    const letters = 30_000;
    await fillDead(letters);
    const hasBegun = async () => (await count('outbox_queue')) > 0;
    const { code, stdout, stderr } = await interrupt(['dead', 'retry', '--all', '--yes'], hasBegun);
    expect({ code, stderr }).toEqual({ code: 130, stderr: '' });
    const done = await count('outbox_queue');
    expect(done).toBeLessThan(letters);
    expect(stdout).toBe(
      `interrupted: ${done.toLocaleString('en-US')} dead letters put back into the queue; to continue, run the same command again\n`,
    );
    const rest = await runHere(['dead', 'retry', '--all', '--yes', '--json'], { env: { DATABASE_URL: db.url } });
    expect(JSON.parse(rest.stdout)).toEqual({ count: letters - done });
  }, 90_000);

  test.each([
    ['SIGTERM', 143],
    ['SIGHUP', 129],
  ] as const)(
    'ends a retry after a chunk on %s, too, with the exit code %i',
    async (signal, expected) => {
      await fillDead(30_000);
      const hasBegun = async () => (await count('outbox_queue')) > 0;
      const { code, stdout } = await interrupt(['dead', 'retry', '--all', '--yes', '--json'], hasBegun, signal);
      expect(code).toBe(expected);
      expect(JSON.parse(stdout)).toEqual({ count: await count('outbox_queue'), interrupted: true });
    },
    90_000,
  );

  test('ends a cancel after a chunk, says how much was done, and the same command continues', async () => {
    const events = 30_000;
    await fill(events);
    const hasBegun = async () => (await count('outbox_dead_letters')) > 0;
    const { code, stdout, stderr } = await interrupt(['events', 'cancel', '--all', '--yes'], hasBegun);
    expect({ code, stderr }).toEqual({ code: 130, stderr: '' });
    const done = await count('outbox_dead_letters');
    expect(done).toBeLessThan(events);
    expect(stdout).toBe(
      `interrupted: ${done.toLocaleString('en-US')} undelivered events cancelled; to continue, run the same command again\n`,
    );
    const rest = await runHere(['events', 'cancel', '--all', '--yes', '--json'], { env: { DATABASE_URL: db.url } });
    expect(JSON.parse(rest.stdout)).toMatchObject({ count: events - done });
  }, 90_000);

  test('ends a replay after a chunk, and --after continues behind it', async () => {
    const events = 30_000;
    await fill(events);
    await settleQueue(db);
    const hasBegun = async () => (await count('outbox_queue')) > 0;
    const { code, stdout } = await interrupt(['replay', '--all', '--yes', '--json'], hasBegun);
    expect(code).toBe(130);
    const { count: done, interrupted, next } = JSON.parse(stdout);
    expect({ done, interrupted }).toEqual({ done: await count('outbox_queue'), interrupted: true });
    expect(done).toBeLessThan(events);
    // Delivered in the meantime: without --after they would be replayed once more.
    await settleQueue(db);
    const rest = await runHere(['replay', '--all', '--yes', '--json', '--after', next], {
      env: { DATABASE_URL: db.url },
    });
    expect(JSON.parse(rest.stdout)).toEqual({ count: events - done });
  }, 90_000);

  test('a replay whose database goes down on its way ends with the exit code of that, and says where it continues', async () => {
    await fillDelivered(2_500);
    await db.query(`
      create function shut_down() returns trigger language plpgsql as $$
      begin raise exception 'terminating connection' using errcode = '57P01'; end $$;
      create trigger shut_down before insert on postcommit.outbox_queue for each row when (new.seq = 1500)
      execute function shut_down()`);
    const env = { DATABASE_URL: db.url };
    const failed = await runHere(['replay', '--all', '--yes'], { env });
    expect(failed.code).toBe(3);
    const [, after] = /1,000 events replayed, continue after (\S+)\. The error: /.exec(failed.stderr) ?? [];
    await db.query('drop trigger shut_down on postcommit.outbox_queue');
    await settleQueue(db);
    const rest = await runHere(['replay', '--all', '--yes', '--json', '--after', after as string], { env });
    expect(JSON.parse(rest.stdout)).toEqual({ count: 1_500 });
  });

  test('ends a replay of a time, and the same command with --after continues it however late it is', async () => {
    await fillDelivered(2_500);
    const stop = new AbortController();
    const times = { from: new Date(Date.now() - 41 * 86_400_000), to: new Date(Date.now() - 39 * 86_400_000) };
    const options = { signal: stop.signal, onProgress: () => stop.abort() };
    const { next } = await createOutbox({ db: fromPg(db.pool), notify: false }).admin.replay(times, options);
    await settleQueue(db);
    // As if it had begun 39 days ago with --from 2d: by now that is after the absolute --to.
    const args = [
      'replay',
      '--from',
      '2d',
      '--to',
      times.to.toISOString(),
      '--yes',
      '--json',
      '--after',
      next as string,
    ];
    const rest = await runHere(args, { env: { DATABASE_URL: db.url } });
    expect({ ...rest, stdout: JSON.parse(rest.stdout) }).toMatchObject({ code: 0, stdout: { count: 1_500 } });
  });
});

describe('progress', () => {
  const commands: [name: string, args: string[], shown: string, prepare: () => Promise<void>][] = [
    ['dead retry', ['dead', 'retry', '--all'], '2,500 of 2,500 dead letters put back', () => fillDead(2_500)],
    ['dead discard', ['dead', 'discard', '--all'], '2,500 of 2,500 dead letters discarded', () => fillDead(2_500)],
    ['events make-due', ['events', 'make-due', '--all'], '2,500 delayed events made due', () => fillDelayed(2_500)],
    ['events cancel', ['events', 'cancel', '--all'], '2,500 undelivered events cancelled', () => fill(2_500)],
    [
      'replay',
      ['replay', '--all'],
      '2,500 of 2,500 delivered events put back',
      async () => {
        await fill(2_500);
        await settleQueue(db);
      },
    ],
    [
      'requeue-unqueued',
      ['requeue-unqueued'],
      '2,500 unqueued events put into the queue',
      async () => {
        await fill(2_500);
        await db.query('truncate postcommit.outbox_queue');
      },
    ],
    [
      'prune',
      ['prune', '--older-than', '30d'],
      '2,500 deleted',
      async () => {
        await fill(2_500);
        await settleQueue(db);
      },
    ],
    ['partitions convert', ['partitions', 'convert', '--by', 'day'], 'step 3 of 3', () => fill(10)],
  ];

  test.each(commands)(
    'of %s is shown on a terminal only, and never with --json',
    async (_name, args, shown, prepare) => {
      await prepare();
      const env = { DATABASE_URL: db.url };
      const { code, stderr } = await runHere([...args, '--yes'], { env, tty: true });
      expect(code).toBe(0);
      expect(stderr).toContain('\r\x1b[2K');
      expect(stderr.endsWith('\r\x1b[2K')).toBe(true);
      expect(stderr).toContain(shown);
      expect(await runHere([...args, '--yes', '--json'], { env, tty: true })).toMatchObject({ code: 0, stderr: '' });
      expect(await runHere([...args, '--yes'], { env })).toMatchObject({ code: 0, stderr: '' });
    },
  );
});

test.each([
  ['dead retry --all', () => fillDead(2_500), [40, 80, 100]],
  ['dead discard --type x', () => fillDead(2_500), [40, 80, 100]],
  ['replay --all', () => fillDelivered(2_500), [40, 80, 100]],
  ['prune --older-than 30d', () => fillDelivered(2_500), [39, 79, 100]],
  ['partitions convert --by day', () => fill(10), [0, 33, 66]],
])('%s draws a bar on a terminal', async (command, prepare, percents) => {
  await prepare();
  const { stderr } = await runHere([...command.split(' '), '--yes'], { env: { DATABASE_URL: db.url }, tty: true });
  const bars = [...stderr.matchAll(/([█░]{20}) +(\d+) % {2}/g)];
  const drawn = bars.map(([, bar = '', percent]) => [bar.replaceAll('░', '').length, Number(percent)]);
  for (const percent of percents) expect(drawn).toContainEqual([Math.floor(percent / 5), percent]);
});

test.each([
  [['events', 'cancel'], 'Cancel 1 event? It will never be delivered.'],
  [['dead', 'discard'], 'Discard 1 dead letter? It will never be delivered.'],
])('%j asks about one event too, in the singular', async (command, question) => {
  const id = '0198c0de-7a5b-7c3d-9e1f-2a3b4c5d6e7f';
  const { code, stderr } = await runHere([...command, id], { env: { DATABASE_URL: db.url } });
  expect(code).toBe(2);
  expect(stderr).toContain(question);
});

test('--from after --to is refused before a question is asked', async () => {
  for (const args of [['events'], ['replay'], ['dead', 'list'], ['dead', 'retry']]) {
    const result = await runHere([...args, '--from', '2h', '--to', '6h'], {
      env: { DATABASE_URL: db.url },
      typed: 'y\n',
    });
    expect(result, args.join(' ')).toMatchObject({ code: 2, stdout: '' });
    expect(result.stderr, args.join(' ')).toMatch(/from .*must not be after .*to/);
    expect(result.stderr).not.toContain('[y/N]');
  }
});
