import pg from 'pg';
import { expect, inject, test } from 'vitest';
import { createTestDatabase } from './database.ts';

test('a test database is migrated, its own, and gone after close()', async () => {
  const [one, two] = await Promise.all([createTestDatabase(), createTestDatabase()]);
  expect(one.url).not.toBe(two.url);
  await one.query('create table only_here ()');
  const [found] = await two.query(`select to_regclass('only_here') as only_here,
    to_regclass('postcommit.outbox_events') as outbox_events`);
  expect(found).toEqual({ only_here: null, outbox_events: 'postcommit.outbox_events' });

  await one.pool.connect(); // Never released, as a failing test would leave it.
  await Promise.all([one.close(), two.close()]);
  const client = new pg.Client({ connectionString: inject('serverUrl') });
  await client.connect();
  const names = [one, two].map(({ url }) => new URL(url).pathname.slice(1));
  const { rows } = await client.query('select datname from pg_database where datname = any($1)', [names]);
  await client.end();
  expect(rows).toEqual([]);
});

test('migrate: false gives an empty database', async () => {
  const database = await createTestDatabase({ migrate: false });
  const rows = await database.query(`select nspname from pg_namespace where nspname = 'postcommit'`);
  expect(rows).toEqual([]);
  await database.close();
});
