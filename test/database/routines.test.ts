import { readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { afterAll, beforeAll, describe, expect, onTestFinished, test } from 'vitest';
import { inOrder, readMigrations, readRoutines } from '../../src/database/migrations.ts';
import { roleRights } from '../../src/database/roles.ts';
import { createOutbox, fromPg, migrate, type OutboxAdmin } from '../../src/index.ts';
import { createTestDatabase, type TestDatabase } from '../support/database.ts';
import { schemaDump } from './schema-dump.ts';

const routines = readRoutines();
const names = routines.map(({ name }) => name);

/** Without comments, which may name any function. */
const codeOf = (source: string) => source.replace(/^\s*--.*$/gm, '');

const definedIn = (source: string) =>
  [...codeOf(source).matchAll(/\bcreate (?:or replace )?(?:function|procedure) (\S+?)\(/g)].map(([, name]) => name);

describe('the files of migrations/routines', () => {
  test.each(routines.map((routine) => [routine.name, routine] as const))('%s', (name, { source, requires }) => {
    expect(source, 'begins with its contract').toMatch(/^-- \S/);
    const defined = definedIn(source);
    expect(defined.length, 'defines a function').toBeGreaterThan(0);
    expect(new Set(defined), 'defines the function that it is named for, and no other').toEqual(
      new Set([`:"schema".${name}`]),
    );
    expect(source, 'can be applied again').not.toMatch(/^create (function|procedure)/m);
    const called = [...codeOf(source).matchAll(/:"schema"\.([a-z_]+)\(/g)].map(([, called]) => called as string);
    const others = new Set(called.filter((called) => called !== name && names.includes(called)));
    expect([...requires].sort(), 'requires what it calls').toEqual([...others].sort());
  });

  /** Reads no table, or runs in the transaction of a handler. */
  const withoutLimit = ['plain_payload', 'server_run', 'queue_names', 'probe_relays', 'settle_in_transaction'];

  test('that relays repeat until they succeed give up a lock before the relay gives up the connection', () => {
    const folder = new URL('../../src/outbox/delivering/', import.meta.url);
    const code = readdirSync(folder).map((name) => readFileSync(new URL(name, folder), 'utf8'));
    const called = new Set(code.flatMap((text) => [...text.matchAll(/\$\{s\}\.([a-z_]+)\(/g)].map(([, name]) => name)));
    expect(called).toContain('claim_many');
    const unlimited = routines.filter(({ name, source }) => called.has(name) && !source.includes('set lock_timeout ='));
    expect(unlimited.map(({ name }) => name).filter((name) => !withoutLimit.includes(name))).toEqual([]);
  });

  test('are the only place where functions are defined', () => {
    for (const { name, source } of readMigrations()) expect(definedIn(source), name).toEqual([]);
  });

  test('come after what they require, and a migration after what it requires', () => {
    const order = inOrder(readMigrations(), routines);
    expect(order.length).toBe(routines.length + readMigrations().length);
    for (const [at, { requires }] of order.entries()) {
      for (const name of requires) expect(order.slice(0, at).map((script) => script.name)).toContain(name);
    }
  });

  test('that require each other, or one that does not exist, are an error', () => {
    const routine = (name: string, ...requires: string[]) => ({ name, source: '', checksum: '', requires });
    expect(() => inOrder([], [routine('a', 'b'), routine('b', 'a')])).toThrow('require each other: a, b');
    expect(() => inOrder([], [routine('a', 'b')])).toThrow('a.sql requires b, which is not in routines/');
  });
});

describe('a routine in the database', () => {
  let database: TestDatabase;
  const again = () => migrate({ connectionString: database.url });

  beforeAll(async () => {
    database = await createTestDatabase();
  });
  afterAll(() => database.close());

  /** As a package with another text of this function would have left it. */
  async function change(name: string, packageVersion: string): Promise<void> {
    const [{ text }] = await database.query(
      `select pg_get_functiondef(oid) as text from pg_proc where pronamespace = 'postcommit'::regnamespace and proname = $1`,
      [name],
    );
    await database.query((text as string).replace(/\bbegin\b/, `begin\n  raise exception 'another';`));
    await database.query(
      `update postcommit.outbox_routines set checksum = 'another', package_version = $2 where name = $1`,
      [name, packageVersion],
    );
  }

  test('is replaced when its file changes, and keeps its rights and its triggers', async () => {
    const before = await schemaDump(database);
    const rights = `select proname, proacl::text from pg_proc where pronamespace = 'postcommit'::regnamespace order by 1`;
    await database.query('grant execute on function postcommit.usable_low_water to public');
    const granted = await database.query(rights);
    for (const name of ['enqueue', 'settle']) await change(name, '0.0.1');
    expect(await again()).toMatchObject({ applied: [], routines: ['enqueue', 'settle'] });
    expect(await schemaDump(database)).toEqual(before);
    expect(await database.query(rights)).toEqual(granted);
    await database.query(`select postcommit.emit('x', 'a', '1', '{}')`);
    expect(await database.query('select from postcommit.outbox_queue')).toHaveLength(1);
    expect(await again()).toMatchObject({ routines: [] });
  });

  test.each([
    ['make_due', (admin: OutboxAdmin) => admin.makeDue({ all: true })],
    ['requeue', (admin: OutboxAdmin) => admin.retry({ all: true })],
    ['replay', (admin: OutboxAdmin) => admin.replay({ all: true })],
  ])('that is missing, as in an older outbox, says which command to run: %s', async (name, call) => {
    await database.query(`alter function postcommit.${name} rename to not_there`);
    try {
      const called = call(createOutbox({ db: fromPg(database.pool) }).admin);
      await expect(called).rejects.toMatchObject({ code: 'POSTCOMMIT_E_MIGRATION_MISSING' });
    } finally {
      await database.query(`alter function postcommit.not_there rename to ${name}`);
    }
  });

  test.each([
    ['a target can be forgotten', `forget_target('kafka', 1, 0, 0)`],
    ['events can be made due', `make_due('{}')`],
    ['events can be cancelled', `cancel_events('{}', '', '')`],
    ['events can be pruned', 'prune_events(0, 0, 1, false)'],
    ['partitions can be changed', 'constrain_log()'],
    ['the sequence can be repaired', 'repair_sequence()'],
  ])('that needs READ COMMITTED refuses another isolation level: %s', async (what, call) => {
    const client = await database.pool.connect();
    onTestFinished(() => client.release(true));
    await client.query('begin isolation level repeatable read');
    await expect(client.query(`select postcommit.${call}`)).rejects.toMatchObject({
      code: '25000',
      message: `${what} only under READ COMMITTED`,
      hint: expect.stringContaining('default_transaction_isolation'),
    });
  });

  test('is created when it is missing', async () => {
    await database.query(
      `delete from postcommit.outbox_routines where name = 'replay'; drop function postcommit.replay`,
    );
    expect(await again()).toMatchObject({ routines: ['replay'] });
    expect(await database.query('select postcommit.replay(array[]::bigint[])')).toEqual([{ replay: 0 }]);
  });

  test('of a newer package is not undone by an older one', async () => {
    await change('settle', '999.0.0');
    expect(await again()).toMatchObject({ routines: [] });
    await change('settle', '0.0.1');
    expect(await again()).toMatchObject({ routines: ['settle'] });
  });

  test('stays as it was when the migration fails', async () => {
    await change('settle', '0.0.1');
    const before = await schemaDump(database);
    // Its arguments cannot be renamed in place.
    await database.query(`delete from postcommit.outbox_routines where name = 'sweep_partition';
      drop function postcommit.sweep_partition;
      create function postcommit.sweep_partition(other bigint, names integer) returns integer language sql as 'select 1'`);
    await expect(again()).rejects.toMatchObject({ code: '42P13' });
    await database.query('drop function postcommit.sweep_partition');
    expect(await database.query(`select from postcommit.outbox_routines where checksum = 'another'`)).toHaveLength(1);
    expect((await again()).routines).toEqual(expect.arrayContaining(['settle', 'sweep_partition']));
    expect(await schemaDump(database)).not.toEqual(before);
  });
});

// Relays and services of one release and of the next run side by side during a deployment, against the routines of the newer
// one. So a routine that they call keeps its arguments and its result. One that must change gets a new name, and the old
// one stays for one release. The file has the routines of the last release; before the first one it is what will be released.
// RECORD_ROUTINES=1 npx vitest run test/database/routines.test.ts writes it.
describe('what relays and services of the last release call', () => {
  const file = 'test/database/released-routines.json';
  const released = JSON.parse(readFileSync(file, 'utf8')) as Record<string, string[]>;
  const callable = new Set(Object.values(roleRights).flatMap((rights) => rights.routines.map((r) => r.split('(')[0])));
  let present: Record<string, string[]>;

  beforeAll(async () => {
    const database = await createTestDatabase();
    const rows = await database.query<{ name: string; signatures: string[] }>(
      `select proname as name, array_agg(format('(%s)%s', pg_get_function_arguments(oid), ' returns ' || pg_get_function_result(oid))
                                         order by pronargs, oid) as signatures
         from pg_proc where pronamespace = 'postcommit'::regnamespace and proname = any ($1) group by 1 order by 1`,
      [[...callable]],
    );
    await database.close();
    present = Object.fromEntries(rows.map(({ name, signatures }) => [name, signatures]));
    if (process.env.RECORD_ROUTINES) writeFileSync(file, `${JSON.stringify(present, undefined, 2)}\n`);
  });

  test('is there, with the same arguments and the same result', () => {
    for (const [name, signatures] of Object.entries(released)) {
      const advice = `${name} was released like this, and relays that run call it. Give the changed function a new name, and keep this one for one release.`;
      expect(present[name], advice).toEqual(signatures);
    }
  });

  test('is all in the file', () => {
    const added = Object.fromEntries(Object.entries(present).filter(([name]) => !(name in released)));
    expect(added, `Add these to ${file}: once they are released they must not change.`).toEqual({});
  });
});
