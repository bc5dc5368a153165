import { describe, expect, it } from 'vitest';
import { grantsSql, migrate } from '../../src/index.ts';
import { createTestDatabase } from '../support/database.ts';
import { runHere } from './fake-terminal.ts';
import { jsonError, runCli } from './run-cli.ts';

describe('postcommit grants', () => {
  it('prints SQL for the four roles, without a database', async () => {
    const { code, stdout, stderr } = await runCli(['grants']);
    expect({ code, stderr }).toEqual({ code: 0, stderr: '' });
    expect(stdout).toBe(grantsSql());
    for (const role of ['emitter', 'relay', 'reader', 'consumer']) {
      expect(stdout).toContain(`\n-- The ${role}: `);
      expect(stdout).toContain(`grant usage on schema "postcommit" to "postcommit_${role}";`);
    }
    expect(stdout).not.toMatch(/create role|all tables|truncate|grant all/i);
  });

  it('prints it for the roles that are named, in the schema that is named', async () => {
    const args = ['grants', '--schema', 'My outbox', '--emitter', 'shop', '--create'];
    const { stdout } = await runHere(args);
    expect(stdout).toBe(grantsSql({ schema: 'My outbox', emitter: 'shop', create: true }));
    expect(stdout).toContain('create role "shop" login');
    expect(stdout).toContain('on "My outbox".outbox_events to "shop";');
    expect(stdout).not.toMatch(/The relay|The reader|"postcommit"/);
    const json = await runHere([...args, '--json']);
    expect(JSON.parse(json.stdout)).toEqual({ schema: 'My outbox', sql: stdout });
  });

  it('can be run again, and with names that would break out of their quotes', async () => {
    const db = await createTestDatabase({ migrate: false });
    const schema = `odd "name" '; -- schema`;
    await migrate({ connectionString: db.url, schema });
    const names = {
      emitter: `$postcommit$ "; drop table x; -- ${process.pid}`,
      relay: `two\nlines '' ${process.pid}`,
    };
    const sql = grantsSql({ schema, ...names, create: true });
    await db.query(sql);
    await db.query(sql);
    const created = await db.query('select rolname from pg_roles where rolname = any ($1)', [Object.values(names)]);
    expect(created).toHaveLength(2);
    for (const name of Object.values(names)) {
      const quoted = `"${name.replaceAll('"', '""')}"`;
      await db.query(`drop owned by ${quoted}; drop role ${quoted}`);
    }
    await db.close();
  });

  it.each([
    [['--emitter', 'public'], 'neither public nor none'],
    [['--relay', 'pg_monitor'], 'relay must be the name of a role'],
    [['--reader', ''], 'reader must be the name of a role'],
    [['--reader', 'x'.repeat(64)], '1 to 63 bytes'],
    [['--emiter', 'x'], 'Did you mean --emitter?'],
    [['--schema', 'pg_catalog'], 'schema name is invalid'],
  ])('refuses %j', async (args, what) => {
    const run = await runHere(['grants', ...args, '--json']);
    expect(run).toMatchObject({ code: 2, stdout: '' });
    expect(jsonError(run).message).toContain(what);
  });

  it('refuses an option that it does not know: a role without its rights would be noticed late', () => {
    expect(() => grantsSql({ emiter: 'x' } as object)).toThrow('There is no option emiter');
  });
});
