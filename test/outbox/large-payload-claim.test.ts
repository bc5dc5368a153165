import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { claimNextSql, claimOneSql, claimSql } from '../../src/outbox/delivering/claim.ts';
import { registerRelay } from '../../src/outbox/delivering/register-relay.ts';
import { createTestDatabase, type TestDatabase } from '../support/database.ts';
import { nestedPlans } from '../support/plans.ts';
import { postgresVersions, serverUrlOf } from '../support/postgres-versions.ts';

const events = 50;

describe.each(postgresVersions)('a claim of payloads of a megabyte, on PostgreSQL %i', (version) => {
  let db: TestDatabase;
  let token: string;

  beforeEach(async () => {
    db = await createTestDatabase({ serverUrl: serverUrlOf(version) });
    token = await registerRelay(db.pool, 'postcommit', { name: 'r', host: 'h', pid: 1, leaseMs: 60_000 });
  });
  afterEach(async () => {
    await db.close();
  });

  /** Blocks that the statements inside of a call touched; a megabyte of payload is over a hundred of them. */
  async function blocksOf(sql: string, values: unknown[]): Promise<number> {
    const client = await db.pool.connect();
    await client.query('select 1');
    await nestedPlans(client, sql, values); // Makes the plans, which reads the catalogue.
    const plans = await nestedPlans(client, sql, values);
    client.release();
    return plans.reduce((sum, top) => sum + (top['Shared Hit Blocks'] ?? 0) + (top['Shared Read Blocks'] ?? 0), 0);
  }
  const emit = (count: number) =>
    // Random hexadecimal digits do not compress below half their size.
    db.query(
      `with large as materialized (select to_jsonb(string_agg(md5(random()::text), '')) as payload from generate_series(1, 30000))
       insert into postcommit.outbox_events (aggregate_type, aggregate_id, event_type, payload)
       select 'a', n::text, 't', payload from large, generate_series(1, $1::integer) n`,
      [count],
    );

  test('reads none of them', async () => {
    await emit(events);
    const values = [token, '0', 100, 1, [], 16_384, null, '0', '0', '', false, false, 1, [], 'default'];
    expect(await blocksOf(claimSql('postcommit'), values)).toBeLessThan(events * 60);
  });

  test('nor does a claim of one event', async () => {
    await emit(1);
    const nextValues = [token, [], 16_384, null, '0', '0', '', [], 'default'];
    expect(await blocksOf(claimNextSql('postcommit'), nextValues)).toBeLessThan(100);
    const oneValues = [token, 'default', 16_384, '0', '0', ''];
    expect(await blocksOf(claimOneSql('postcommit'), oneValues)).toBeLessThan(100);
  });
});
