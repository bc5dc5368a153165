import type pg from 'pg';
import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { createOutbox, fromPg, type Outbox } from '../../src/index.ts';
import { createTestDatabase, type TestDatabase } from '../support/database.ts';
import { postgresVersions, serverUrlOf } from '../support/postgres-versions.ts';
import { recordServer } from '../support/servers-used.ts';

const dayMs = 24 * 3_600_000;
const limitMs = 366 * dayMs;
/** Enough for a slow statement, and far less than what a mistake by a day or a time zone would be. */
const slackMs = 60_000;

const constraint = 'outbox_events_available_at_check';

describe.each(postgresVersions)('the longest delay of an event, on PostgreSQL %i', (version) => {
  let database: TestDatabase;
  let outbox: Outbox<pg.PoolClient>;

  beforeAll(async () => {
    database = await createTestDatabase({ serverUrl: serverUrlOf(version) });
    outbox = createOutbox<pg.PoolClient>({ db: fromPg(database.pool) });
    const [{ server_version: found }] = await database.query('show server_version');
    recordServer(`PostgreSQL ${found}`);
  });
  afterAll(async () => {
    await database.close();
  });
  beforeEach(async () => {
    await database.query('truncate postcommit.outbox_events, postcommit.outbox_queue');
  });

  const now = async () =>
    Number((await database.query('select extract(epoch from clock_timestamp()) * 1000 as ms'))[0].ms);
  const written = async () =>
    (
      await database.query(
        'select count(*)::integer as n from postcommit.outbox_events join postcommit.outbox_queue using (seq)',
      )
    )[0].n;

  const event = { event_type: 'x', aggregate_type: 'a', aggregate_id: '1', payload: 1 };
  const listOf = (more: object) => JSON.stringify([{ ...event, id: '018f3b1e-7f57-7000-8000-000000000001', ...more }]);
  const iso = async (aheadMs: number) => new Date((await now()) + aheadMs).toISOString();
  /** Every way to write a delayed event, by the time that it is ahead. */
  const ways: [string, (aheadMs: number) => Promise<unknown>][] = [
    [
      'a plain INSERT',
      async (aheadMs) =>
        database.query(
          `insert into postcommit.outbox_events (aggregate_type, aggregate_id, event_type, payload, available_at)
           values ('a', '1', 'x', '1', $1)`,
          [await iso(aheadMs)],
        ),
    ],
    [
      'emit(…) with available_at',
      async (aheadMs) =>
        database.query(`select postcommit.emit('x', 'a', '1', '1', available_at => $1)`, [await iso(aheadMs)]),
    ],
    [
      'emit(jsonb) with available_at',
      async (aheadMs) =>
        database.query('select postcommit.emit($1::jsonb)', [listOf({ available_at: await iso(aheadMs) })]),
    ],
    [
      'emit(jsonb) with delay_ms',
      (aheadMs) => database.query('select postcommit.emit($1::jsonb)', [listOf({ delay_ms: aheadMs })]),
    ],
    [
      'emit_once(jsonb) with delay_ms',
      (aheadMs) => database.query('select postcommit.emit_once($1::jsonb)', [listOf({ delay_ms: aheadMs })]),
    ],
    [
      'emit_one with delay_ms',
      (aheadMs) =>
        database.query(
          `call postcommit.emit_one('018f3b1e-7f57-7000-8000-000000000001', 'a', '1', 'x', '1', null, '1', '{}', null, $1, 'true', '')`,
          [String(aheadMs)],
        ),
    ],
  ];

  test.each(ways)('%s: up to 366 days', async (_name, write) => {
    await expect(write(limitMs + slackMs)).rejects.toMatchObject({ code: '23514', constraint });
    await write(limitMs - slackMs);
    expect(await written()).toBe(1);
  });

  test('delay_ms of exactly the limit, in a transaction that began before, in a time zone with summer time', async () => {
    const client = await database.pool.connect();
    try {
      await client.query(`begin; set local timezone = 'America/New_York'; select pg_sleep(0.02)`);
      await client.query('select postcommit.emit($1::jsonb)', [listOf({ delay_ms: limitMs })]);
      await client.query('commit');
    } finally {
      client.release();
    }
    expect(await written()).toBe(1);
  });

  const emitted = (more: object) =>
    outbox.transaction((_tx, emit) => emit({ type: 'x', aggregate: ['a', '1'], payload: 1, ...more }));

  test('the library agrees: delayMs', async () => {
    await emitted({ delayMs: limitMs });
    await expect(emitted({ delayMs: limitMs + 1 })).rejects.toMatchObject({ code: 'POSTCOMMIT_E_BAD_DELAY' });
    expect(await written()).toBe(1);
  });

  test('the library agrees: availableAt, by the clock of the database', async () => {
    await emitted({ availableAt: new Date((await now()) + limitMs - slackMs) });
    for (const availableAt of [new Date((await now()) + limitMs + slackMs), new Date('9999-12-31T23:59:59.999Z')]) {
      const refused = { code: 'POSTCOMMIT_E_BAD_DELAY', message: expect.stringContaining('366 days') };
      await expect(emitted({ availableAt })).rejects.toMatchObject(refused);
      await expect(
        outbox.transaction((_tx, emit) =>
          emit([1, 2].map((n) => ({ type: 'x', aggregate: ['a', n] as const, payload: 1, availableAt }))),
        ),
      ).rejects.toMatchObject(refused);
    }
    expect(await written()).toBe(1);
  });

  test.each(['infinity', '-infinity', '0001-01-01 00:00:00 BC', '9999-12-31'])('%s is refused', async (time) => {
    const insert = `insert into postcommit.outbox_events (aggregate_type, aggregate_id, event_type, payload, available_at)
                    values ('a', '1', 'x', '1', $1)`;
    await expect(database.query(insert, [time])).rejects.toMatchObject({ code: '23514', constraint });
  });

  test('in a partition too', async () => {
    const partitioned = await createTestDatabase({ serverUrl: serverUrlOf(version) });
    try {
      const emitter = createOutbox({ db: fromPg(partitioned.pool) });
      await emitter.admin.partitions.convert('day');
      const emitting = emitter.transaction((_tx, emit) =>
        emit({ type: 'x', aggregate: ['a', '1'], payload: 1, availableAt: new Date(Date.now() + 2 * limitMs) }),
      );
      await expect(emitting).rejects.toMatchObject({
        code: 'POSTCOMMIT_E_BAD_DELAY',
        cause: expect.objectContaining({ constraint, table: 'outbox_events' }),
      });
    } finally {
      await partitioned.close();
    }
  });
});
