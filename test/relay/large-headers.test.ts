import { randomBytes } from 'node:crypto';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import type { DeliveredEvent } from '../../src/index.ts';
import { type ClaimedRow, claim, claimNext, readClaimed } from '../../src/outbox/delivering/claim.ts';
import { inlineBytesMax, loadPayload } from '../../src/outbox/delivering/load-payload.ts';
import { registerRelay } from '../../src/outbox/delivering/register-relay.ts';
import { createTestDatabase, type TestDatabase } from '../support/database.ts';
import { postgresVersions, serverUrlOf } from '../support/postgres-versions.ts';
import { quietPool } from '../support/quiet-pool.ts';
import { withScenario } from '../support/relay-scenario.ts';
import { until } from '../support/wait.ts';

const noLowWater = { mark: '0', requeues: '0', server: '' };

/** Inserts one event per aggregate, with headers and a payload of about so many bytes, which compress well. */
const insertSql = `
insert into postcommit.outbox_events (aggregate_type, aggregate_id, event_type, payload, headers)
select 'thing', n::text, 'scripted', jsonb_build_object('pad', repeat('p', $3)), jsonb_build_object('pad', repeat('h', $2) || '€')
  from generate_series(1, $1::integer) n`;

describe.each(postgresVersions)('a claim of events with large headers, on PostgreSQL %i', (version) => {
  let db: TestDatabase;
  let token: string;
  const query = (text: string, values: unknown[]) => db.pool.query({ text, values, rowMode: 'array' });

  beforeEach(async () => {
    db = await createTestDatabase({ serverUrl: serverUrlOf(version) });
    token = await registerRelay(db.pool, 'postcommit', { name: 'r', host: 'h', pid: 1, leaseMs: 600_000 });
  });
  afterEach(async () => {
    await db.close();
  });

  const request = (inline = inlineBytesMax) => ({
    token,
    floor: '0',
    readyMax: 1_000,
    dueMax: 1,
    exceptKeys: [],
    inlineBytesMax: inline,
    knownSeqs: undefined,
    lowWater: noLowWater,
    sample: false,
    ownShards: false,
    suspectMax: 1,
    targets: [],
  });
  const lengthOf = ({ payloadJson, headersJson }: ClaimedRow) => (payloadJson?.length ?? 0) + headersJson.length;

  test('brings no more text an event than the lane counts on, and the rest is loaded', async () => {
    await db.query(insertSql, [300, 60_000, 10]);
    await db.query(insertSql, [100, 12_000, 12_000]);
    await db.query(insertSql, [100, 10_000, 10]);
    const { rows } = await claim(query, 'postcommit', request());
    expect(rows).toHaveLength(500);
    expect(Math.max(...rows.map(lengthOf))).toBeLessThanOrEqual(inlineBytesMax);
    const of = (row: ClaimedRow | undefined) => ({
      payload: row?.payloadJson?.length,
      headers: row?.headersJson.length,
    });
    expect(of(rows[0])).toEqual({ payload: undefined, headers: 2 });
    expect(of(rows[300])).toEqual({ payload: undefined, headers: 12_012 });
    expect(of(rows[400])).toEqual({ payload: 21, headers: 10_012 });
    const [large, both] = [rows[0]?.seq ?? '', rows[300]?.seq ?? ''];
    expect(await loadPayload(db.pool, 'postcommit', large, 100_000)).toEqual({
      json: `{"pad": "${'p'.repeat(10)}"}`,
      headersJson: `{"pad": "${'h'.repeat(60_000)}€"}`,
      bytes: 60_035,
    });
    expect(await loadPayload(db.pool, 'postcommit', large, 60_034)).toMatchObject({ json: undefined, bytes: 60_035 });
    expect(await loadPayload(db.pool, 'postcommit', both, 100_000)).toMatchObject({
      headersJson: undefined,
      bytes: 12_011,
    });
  });

  test('of one event, or event by event, does the same', async () => {
    await db.query(insertSql, [1, 60_000, 10]);
    const next = await claimNext(query, 'postcommit', request());
    expect(next).toMatchObject({ rows: [{ payloadJson: undefined, headersJson: '{}' }] });
    await db.query('update postcommit.outbox_queue set claimed_by = null');
    const { rows } = await claim(query, 'postcommit', request(-1));
    await readClaimed(query, 'postcommit', rows);
    expect(rows).toMatchObject([{ type: 'scripted', payloadJson: undefined, headersJson: '{}' }]);
  });
});

describe('events with large headers', () => {
  test(
    'that a role which may only insert has written fit a process with a heap of 256 MB',
    withScenario(async (scenario) => {
      const role = `writer_${randomBytes(4).toString('hex')}`;
      await scenario.db.query(`create role ${role} login password 'secret'`);
      await scenario.db.query(`grant usage on schema postcommit to ${role}`);
      await scenario.db.query(`grant insert on postcommit.outbox_events to ${role}`);
      const url = new URL(scenario.db.url);
      [url.username, url.password] = [role, 'secret'];
      const pool = quietPool(url.href, { max: 1 });
      try {
        await pool.query(insertSql, [3_000, 60_000, 10]);
        const child = await scenario.child('one', {}, { env: { NODE_OPTIONS: '--max-old-space-size=256' } });
        await Promise.race([
          scenario.drained(100_000),
          child.exited.then(() => Promise.reject(new Error(`the relay ended:\n${child.stderr().slice(-2_000)}`))),
        ]);
        expect(await scenario.findings()).toEqual({ lost: [], orderViolations: [], overlaps: [], duplicates: 0 });
        expect(await scenario.db.query('select seq from postcommit.outbox_dead_letters')).toEqual([]);
      } finally {
        await pool.end();
        await scenario.db.query(`drop owned by ${role}; drop role ${role}`);
      }
    }),
    120_000,
  );

  test(
    'reach the handler whole, in order, also when it reads them after its delivery has ended',
    withScenario(async (scenario) => {
      const seen: DeliveredEvent[] = [];
      await scenario.db.query(insertSql, [5, 60_000, 10]);
      await scenario.db.query(insertSql, [5, 100, 10]);
      await scenario.db.query(insertSql, [5, 30_000, 30_000]);
      const relay = await scenario.relay('one', { handlers: { scripted: { see: (event) => void seen.push(event) } } });
      await until(() => relay.stats().delivered === 15, { what: 'all are delivered' });
      await scenario.drained();
      const sizes = seen
        .sort((a, b) => Number(a.seq) - Number(b.seq))
        .map(({ headers, payload }) => [headers.pad?.length, (payload as { pad: string }).pad.length]);
      const five = (size: number[]) => Array.from({ length: 5 }, () => size);
      expect(sizes).toEqual([...five([60_001, 10]), ...five([101, 10]), ...five([30_001, 30_000])]);
      expect(relay.stats()).toMatchObject({ delivered: 15, released: 0, failed: 0, deadLettered: 0 });
    }),
  );
});
