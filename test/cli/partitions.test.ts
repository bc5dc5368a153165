import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { createTestDatabase, type TestDatabase } from '../support/database.ts';
import { settleQueue } from '../support/settle-queue.ts';
import { operatorOf, runHere } from './fake-terminal.ts';
import { jsonError, projectFolder, runCli } from './run-cli.ts';

const idsChange =
  'Ids are unique within a partition only: INSERT ... ON CONFLICT (id) into the log fails (42P10); use emit_once instead.';

describe('postcommit partitions', () => {
  let db: TestDatabase;
  const { here, json } = operatorOf(() => db.url);

  beforeAll(async () => {
    db = await createTestDatabase();
    await db.query(`select postcommit.emit('x', 'a', i::text, '{}') from generate_series(1, 3) i`);
  });
  afterAll(() => db.close());

  it('tells that there are none, and how to have them', async () => {
    const text = await here('partitions');
    expect(text).toMatchObject({ code: 0, stderr: '' });
    expect(text.stdout).toMatch(/^the log is one table: \d+ KiB .*\n.*postcommit partitions convert --by day\n$/);
    expect(await json('partitions')).toEqual({ unit: 'none', partitions: [], bytes: expect.any(Number) });
    for (const command of [['rotate'], ['drop', '0', '--yes']]) {
      const refused = await here('partitions', ...command, '--json');
      expect(refused.code).toBe(1);
      expect(jsonError(refused).code).toBe('POSTCOMMIT_E_NOT_PARTITIONED');
    }
    const migrated = await here('migrate', '--partitions', 'day');
    expect(migrated.stdout).toMatch(/the log is one table\n.*postcommit partitions convert --by day/);
  });

  it.each([
    [['convert'], '--by'],
    [['convert', '--by', 'year'], 'Allowed choices are day, month'],
    [['drop'], 'number'],
    [['drop', 'p3'], 'whole number'],
    [['dorp', '3'], 'Did you mean drop?'],
  ])('refuses %j', async (args, part) => {
    const refused = await here('partitions', ...args, '--json');
    expect(refused.code).toBe(2);
    expect(jsonError(refused).message).toContain(part);
  });

  it('says what a conversion changes for SQL of one’s own, and asks a person before it', async () => {
    const env = { DATABASE_URL: db.url };
    const asked = await runHere(['partitions', 'convert', '--by', 'day'], { env, typed: 'n\n' });
    expect(asked.code).toBe(2);
    expect(asked.stderr).toContain(`${idsChange} This cannot be undone. Partition the log by day? [y/N]`);
    expect(await json('partitions')).toMatchObject({ unit: 'none' });
    expect((await here('partitions', 'convert', '--help')).stdout.replace(/\s+/g, ' ')).toContain('ON CONFLICT (id)');
  });

  it('converts, lists, rotates and drops', async () => {
    const unasked = await runCli(['partitions', 'convert', '--by', 'day'], { env: { DATABASE_URL: db.url } });
    expect(unasked).toMatchObject({ code: 2, stdout: '', stderr: expect.stringContaining('Pass --yes to confirm') });
    expect(await json('partitions')).toMatchObject({ unit: 'none' });
    const converted = await runCli(['partitions', 'convert', '--by', 'day', '--yes'], {
      env: { DATABASE_URL: db.url },
    });
    expect(converted).toMatchObject({ code: 0, stderr: '' });
    expect(converted.stdout).toBe(
      `done: the log is partitioned by day; new events go into partition 1\n${idsChange}\n`,
    );
    const lines = (await here('partitions', 'list')).stdout.trimEnd().split('\n');
    expect(lines).toEqual([
      expect.stringMatching(/^the log is partitioned by day: .* with the delivery record$/),
      expect.stringMatching(/^NUMBER +STATE +OPENED +CLOSED +EVENTS +SIZE +UNDELIVERED +DEAD LETTERS$/),
      expect.stringMatching(/^0 +closed +20\S+ \S+Z +20\S+ \S+Z +3 +\d+ KiB +3 +0$/),
      expect.stringMatching(/^1 +open +20\S+ \S+Z +- +0 +\d+ KiB +0 +0$/),
      expect.stringMatching(/^2 +spare +- +- +0 +\d+ KiB +0 +0$/),
      expect.stringMatching(/^3 +spare /),
    ]);

    const kept = await here('partitions', 'drop', '0', '--yes');
    expect(kept.code).toBe(1);
    expect(kept.stderr).toContain('Partition 0: 3 of its events are not delivered yet. [POSTCOMMIT_E_PARTITION_KEPT]');
    expect(await json('partitions', 'convert', '--by', 'month')).toEqual({
      unit: 'month',
      converted: false,
      current: 1,
    });
    expect(await json('partitions', 'rotate')).toEqual({ unit: 'month', current: 2, opened: 2, created: [4] });
    expect((await here('partitions', 'rotate')).stdout).toBe('new events go into partition 3\ncreated: 5\n');

    await settleQueue(db);
    const asked = await runHere(['partitions', 'drop', '0'], { env: { DATABASE_URL: db.url }, typed: 'n\n' });
    expect(asked.code).toBe(2);
    expect(await json('partitions', 'drop', '0', '--yes')).toEqual({ number: 0, deadLetters: 0 });
    expect((await here('partitions', 'drop', '1', '--yes')).stdout).toBe('dropped partition 1\n');
    const gone = await here('partitions', 'drop', '1', '--yes', '--json');
    expect(jsonError(gone)).toMatchObject({
      code: 'POSTCOMMIT_E_NO_SUCH_PARTITION',
      message: expect.stringContaining('Partition 1 may have been dropped. The partitions are 2 to 5.'),
    });
  });
});

describe('a new outbox', () => {
  it('is partitioned as init, the config file or the flag says', async () => {
    const database = await createTestDatabase({ migrate: false });
    try {
      const cwd = projectFolder({});
      const env = { DATABASE_URL: database.url };
      expect((await runHere(['init', '--partitions', 'month', '--format', 'json'], { cwd })).code).toBe(0);
      const config = JSON.parse(readFileSync(join(cwd, 'postcommit.config.json'), 'utf8'));
      expect(config).toMatchObject({ schema: 'postcommit', partitions: 'month' });
      const migrated = await runHere(['migrate', '--json'], { cwd, env });
      expect(migrated, migrated.stderr).toMatchObject({ code: 0 });
      expect(JSON.parse(migrated.stdout)).toMatchObject({ partitions: 'month' });
      const other = await runHere(['migrate', '--schema', 'other', '--partitions', 'day'], { cwd, env });
      expect(other.stdout).toContain('the log is partitioned by day');
    } finally {
      await database.close();
    }
  });

  it('is written into a TypeScript config file, and the SQL', async () => {
    const cwd = projectFolder({});
    await runHere(['init', '--partitions', 'day'], { cwd });
    expect(readFileSync(join(cwd, 'postcommit.config.ts'), 'utf8')).toContain("\n  partitions: 'day',\n");
    expect((await runHere(['sql', '--partitions', 'day'], { cwd })).stdout).toContain(`partition_log('day'::text)`);
    expect((await runHere(['sql'], { cwd })).stdout).not.toContain(`partition_log('day'::text)`);
  });
});
