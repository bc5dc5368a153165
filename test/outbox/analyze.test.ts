import { randomBytes } from 'node:crypto';
import pg from 'pg';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { analyze } from '../../src/outbox/maintaining/analyze.ts';
import { createTestDatabase, type TestDatabase } from '../support/database.ts';
import { until } from '../support/wait.ts';

let db: TestDatabase;
const role = `postcommit_test_${randomBytes(6).toString('hex')}`;

beforeAll(async () => {
  db = await createTestDatabase();
  await db.query('alter table postcommit.outbox_queue set (autovacuum_enabled = false)');
  await db.query(`create role ${role} login password 'p'`);
  await db.query(`grant usage on schema postcommit to ${role}`);
  await db.query(`grant all on all tables in schema postcommit to ${role}`);
  await db.query(
    `do $$ begin
       if current_setting('server_version_num')::integer >= 170000 then
         execute 'revoke maintain on all tables in schema postcommit from ${role}';
       end if;
     end $$`,
  );
});

afterAll(async () => {
  await db.query(`drop owned by ${role}`);
  await db.query(`drop role ${role}`);
  await db.close();
});

test('nothing is analyzed while the statistics are good', async () => {
  expect(await analyze(db.pool, 'postcommit')).toEqual({ analyzed: [], forbidden: [] });
});

test('a queue that changed much is: a role without the right reports it, one with the right analyzes', async () => {
  await db.query('insert into postcommit.outbox_queue (seq) select generate_series(1, 100001)');
  await until(
    async () => {
      const [row] = await db.query(
        `select n_mod_since_analyze as n from pg_stat_all_tables
          where schemaname = 'postcommit' and relname = 'outbox_queue'`,
      );
      return Number(row.n) > 100_000;
    },
    { what: 'the server has counted the changes' },
  );
  const url = new URL(db.url);
  url.username = role;
  url.password = 'p';
  const unprivileged = new pg.Client({ connectionString: url.href });
  await unprivileged.connect();
  try {
    expect(await analyze(unprivileged, 'postcommit')).toEqual({ analyzed: [], forbidden: ['outbox_queue'] });
  } finally {
    await unprivileged.end();
  }
  expect(await analyze(db.pool, 'postcommit')).toEqual({ analyzed: ['outbox_queue'], forbidden: [] });
  const [{ reltuples }] = await db.query(
    `select reltuples::integer from pg_class where oid = 'postcommit.outbox_queue'::regclass`,
  );
  expect(reltuples).toBe(100_001);
});
