import { existsSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { createOutbox, fromPg } from '../../src/index.ts';
import type { TestDatabase } from '../support/database.ts';
import { createTestDatabase } from '../support/database.ts';
import { runHere } from './fake-terminal.ts';
import type { CliResult } from './run-cli.ts';
import { jsonError, makeProjectFolder, projectFolder, runCli } from './run-cli.ts';

// Order 1 is delivered, the receipt of order 2 fails for good, order 3 is rejected.
const config = `
import { defineConfig, Reject, type DeliveredEvent } from 'postcommit';

const fail = (event: DeliveredEvent<{ id: string }>) => {
  if (event.payload.id === '2') throw new Error('smtp: connection refused');
  if (event.payload.id === '3') throw new Reject('no such customer \\u001b[2J');
};
export default defineConfig({
  schema: 'orders',
  handlers: { 'order.created': { audit: () => {}, receipt: fail } },
  retry: { delaysMs: [1] },
});
`;

const migrations = readdirSync('migrations')
  .filter((file) => file.endsWith('.sql'))
  .sort()
  .map((file) => file.replace('.sql', ''));
const latest = migrations.length;

describe('an operator with the command line', () => {
  let db: TestDatabase;
  let project: ReturnType<typeof makeProjectFolder>;
  let ids: string[];
  const options = () => ({ cwd: project.folder, env: { DATABASE_URL: db.url } });
  /** In a process of its own, as users run it: each command once. */
  const run = (...args: string[]) => runCli(args, options());
  /** In this process, which costs a tenth of that. */
  const here = (...args: string[]) => runHere(args, options());
  // biome-ignore lint/suspicious/noExplicitAny: a test knows the fields of the answer it asked for.
  const runJson = async (...args: string[]): Promise<any> => answer(await here(...args, '--json'));

  beforeAll(async () => {
    db = await createTestDatabase({ migrate: false });
    project = makeProjectFolder({ 'postcommit.config.ts': config });
  });
  afterAll(async () => {
    project.remove();
    await db.close();
  });

  it('migrates, after a look at what that would do', async () => {
    expect(await here('status')).toMatchObject({ code: 4, stdout: '' });
    expect(await runJson('migrate', '--dry-run')).toMatchObject({
      schema: 'orders',
      version: 0,
      pending: migrations,
    });
    expect((await db.query("select to_regnamespace('orders') as schema"))[0].schema).toBeNull();
    const applied = await run('migrate');
    expect(applied).toMatchObject({ code: 0, stderr: '' });
    expect(applied.stdout).toContain(migrations.map((name) => `applied ${name}\n`).join(''));
    expect(applied.stdout).toMatch(/\ncreated or replaced \d+ functions\n/);
    const [again, dryRun] = await Promise.all([runJson('migrate'), here('migrate', '--dry-run')]);
    expect(again).toEqual({ schema: 'orders', version: latest, applied: [], routines: [] });
    expect(dryRun.stdout).toBe(`up to date: schema orders is at version ${latest}\n`);
  });

  it('creates an inbox alone, and prints its SQL', async () => {
    const inbox = ['--schema', 'mail', '--inbox-only'];
    const preview = await here('migrate', ...inbox, '--dry-run');
    expect(preview.stdout).toContain('would apply 0002_inbox\n');
    expect(preview.stdout).toContain('`npx postcommit --schema mail sql --inbox-only` prints the SQL');
    expect(await runJson('migrate', ...inbox)).toEqual({
      schema: 'mail',
      version: 2,
      applied: ['0002_inbox'],
      routines: ['record_processed'],
    });
    const { sql } = await runJson('sql', ...inbox);
    expect(sql).toContain('create table "mail".processed_events');
    expect(sql).not.toContain('outbox_events');
    expect(await here('migrate', ...inbox, '--partitions', 'day')).toMatchObject({ code: 2 });
  });

  it('installs and removes the trigger that notifies relays', async () => {
    expect((await here('migrate', '--notify-trigger', '--dry-run')).stdout).toContain(
      'would install the trigger outbox_events_notify\n',
    );
    expect(await runJson('migrate', '--notify-trigger')).toMatchObject({ notifyTrigger: 'installed' });
    expect((await here('migrate', '--notify-trigger')).stdout).toContain('every INSERT already notifies relays\n');
    expect(await runJson('migrate')).not.toHaveProperty('notifyTrigger');
    const { sql } = await runJson('sql', '--notify-trigger', '--after', String(latest));
    expect(sql).toContain('create or replace trigger outbox_events_notify after insert on "orders".outbox_events');
    expect((await here('migrate', '--no-notify-trigger')).stdout).toContain(
      'removed the trigger outbox_events_notify\n',
    );
    expect((await runJson('sql')).sql).not.toContain('trigger outbox_events_notify');
  });

  it('prints the same migration as SQL, without a database', async () => {
    const other = await createTestDatabase({ migrate: false });
    try {
      const { code, stdout } = await runCli(['sql', '--schema', 'by "hand"'], { cwd: project.folder });
      expect(code).toBe(0);
      await other.pool.query(stdout);
      const args = ['migrate', '--schema', 'by "hand"', '--database-url', other.url, '--json'];
      expect(answer(await runHere(args))).toEqual({ schema: 'by "hand"', version: latest, applied: [], routines: [] });
    } finally {
      await other.close();
    }
    const { schema, sql } = await runJson('sql', '--after', String(latest));
    expect({ schema, sql }).toEqual({
      schema: 'orders',
      sql: expect.not.stringContaining('create table "orders".outbox_events'),
    });
  });

  it('delivers once and sees what came of it', async () => {
    const outbox = createOutbox({ db: fromPg(db.pool), schema: 'orders' });
    ids = await outbox.transaction(async (_tx, emit) =>
      emit(
        ['1', '2', '3'].map((id) => ({
          type: 'order.created',
          aggregate: ['order', id] as const,
          payload: { id },
          headers: { tenant: 'acme' },
        })),
      ),
    );
    expect(await runJson('status')).toMatchObject({ pending: 3, delivered: 0, failed: 0, relaysAlive: 0, ok: true });

    // The retry is due a millisecond later, which the first run may or may not see.
    const first = answer(await run('relay', '--once', '--json'));
    const second = await runJson('relay', '--once', '--name', 'night');
    expect(first.delivered + second.delivered).toBe(1);
    expect(first.deadLettered + second.deadLettered).toBe(2);

    const [status, check] = await Promise.all([
      run('status'),
      here(
        'status',
        '--json',
        '--pending-max',
        '0',
        '--dead-letters-max',
        '1',
        '--relays-min',
        '1',
        '--oldest-pending-ms-max',
        '1000',
      ),
    ]);
    expect(status).toMatchObject({ code: 0, stderr: '' });
    expect(status.stdout).toMatch(/pending +0\n/);
    expect(status.stdout).toMatch(/delivered +1\n/);
    expect(status.stdout).toMatch(/dead letters +2 /);
    expect(check).toMatchObject({ code: 1, stderr: '' });
    expect(JSON.parse(check.stdout)).toMatchObject({
      ok: false,
      exceeded: [
        { check: 'deadLettersMax', limit: 1, found: 2 },
        { check: 'relaysMin', limit: 1, found: 0 },
      ],
    });
  });

  it('lists events page by page', async () => {
    const [text, page] = await Promise.all([run('events'), runJson('events', '--limit', '2', '--order', 'oldest')]);
    expect(text.stdout).toMatch(/^ID +STATUS +ATTEMPTS +TYPE +AGGREGATE +EMITTED +LAST ERROR\n/);
    for (const id of ids) expect(text.stdout).toContain(id);
    expect(text.stdout).not.toContain('\x1b');
    expect(page.events.map(({ id }: { id: string }) => id)).toEqual(ids.slice(0, 2));
    const [rest, sent, none] = await Promise.all([
      runJson('events', '--order', 'oldest', '--after', page.next),
      runJson('events', '--status', 'sent', '--aggregate', 'order:1', '--from', '1h'),
      here('events', '--to', '1h'),
    ]);
    expect(rest.events.map(({ id }: { id: string }) => id)).toEqual(ids.slice(2));
    expect(sent.events).toMatchObject([{ id: ids[0], status: 'SENT', attempts: 1 }]);
    expect(none).toMatchObject({ code: 0, stdout: 'no events\n' });
  });

  it('tells the whole story of an event', async () => {
    const [text, json] = await Promise.all([run('events', ids[1] ?? ''), run('dead', 'show', ids[2] ?? '', '--json')]);
    expect(text).toMatchObject({ code: 0, stderr: '' });
    for (const part of [
      'order.created  order:2  FAILED (dead letter)',
      'delivered to audit',
      /attempt 1 failed in receipt .*: smtp: connection refused/,
      /attempt 2 failed in receipt \(relay night\)|attempt 2 failed in receipt/,
      'dead letter: all attempts failed',
      'tenant: acme',
      '"id": "2"',
      `postcommit dead retry ${ids[1]}`,
    ]) {
      expect(text.stdout).toMatch(part);
    }
    expect(answer(json)).toMatchObject({
      id: ids[2],
      status: 'FAILED',
      deadLetter: { reason: 'rejected' },
      payload: { id: '3' },
    });
  });

  it('says so when there is no such event', async () => {
    const unknown = '0198c0de-7a5b-7c3d-9e1f-2a3b4c5d6e7f';
    const [event, notDead, retry, bad] = await Promise.all([
      here('events', unknown, '--json'),
      here('dead', 'show', ids[0] ?? '', '--json'),
      here('dead', 'retry', unknown, ids[0] ?? '', '--json'),
      here('events', 'order-1', '--json'),
    ]);
    for (const result of [event, notDead, retry]) {
      expect(result).toMatchObject({ code: 1, stdout: '' });
      expect(jsonError(result).code).toBe('POSTCOMMIT_E_NOT_FOUND');
    }
    // The event exists, so the error must not say otherwise.
    expect(jsonError(notDead).message).toMatch(
      /^The requested item was not found\. \S+ is not a dead letter\. Its status is SENT\.$/,
    );
    expect(jsonError(retry).message).toContain('None of the ids is a dead letter.');
    expect(bad.code).toBe(2);
    expect(jsonError(bad).code).toBe('POSTCOMMIT_E_BAD_ID');
  });

  it('retries, discards and replays', async () => {
    const [list, filtered] = await Promise.all([
      run('dead', 'list'),
      runJson('dead', 'list', '--reason', 'rejected', '--error', 'customer'),
    ]);
    expect(list.stdout).toMatch(/^ID +REASON/);
    expect(list.stdout).not.toContain('\x1b');
    expect(filtered.deadLetters).toMatchObject([{ id: ids[2], reason: 'rejected' }]);

    expect((await run('dead', 'discard', ids[2] ?? '', '--yes')).stdout).toBe('1 dead letter discarded\n');
    expect(answer(await run('dead', 'retry', '--all', '--yes', '--json'))).toEqual({ count: 1 });
    expect(answer(await run('replay', '--type', 'order.created', '--from', '1h', '--yes', '--json'))).toEqual({
      count: 1,
    });
    const [left, discarded, status] = await Promise.all([
      here('dead', 'list'),
      runJson('dead', 'list', '--include-discarded'),
      runJson('status'),
    ]);
    expect(left.stdout).toBe('no dead letters\n');
    expect(discarded.deadLetters).toMatchObject([{ id: ids[2] }]);
    expect(status).toMatchObject({ pending: 2, failed: 0 });
  });
});

describe('postcommit init', () => {
  it('writes a config file that works as it is, and never over another', async () => {
    const cwd = projectFolder({});
    const first = await runCli(['init'], { cwd });
    expect(first).toMatchObject({ code: 0, stderr: '' });
    expect(first.stdout).toContain('npx postcommit migrate');
    const file = join(cwd, 'postcommit.config.ts');
    writeFileSync(file, `${readFileSync(file, 'utf8')}// mine\n`);

    const refused = await runHere(['init', '--format', 'js', '--json'], { cwd });
    expect(refused).toMatchObject({ code: 2, stdout: '' });
    expect(jsonError(refused).message).toContain('--force');
    expect(existsSync(join(cwd, 'postcommit.config.js'))).toBe(false);
    expect(readFileSync(file, 'utf8')).toMatch(/\/\/ mine\n$/);

    const forced = answer(await runHere(['init', '--force', '--json'], { cwd }));
    expect(forced.file).toBe(file);
    expect(readFileSync(file, 'utf8')).not.toContain('// mine');
    // It loads, and says where the database comes from.
    const status = await runHere(['status', '--json'], { cwd });
    expect(jsonError(status).code).toBe('POSTCOMMIT_E_NO_DATABASE_URL');
  });
});

/** The one JSON document of a command that worked. */
// biome-ignore lint/suspicious/noExplicitAny: see runJson.
function answer(result: CliResult): any {
  expect(result, result.stderr).toMatchObject({ code: 0 });
  return JSON.parse(result.stdout);
}
