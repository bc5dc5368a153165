import assert from 'node:assert/strict';
import type { Executor } from '../database/executor.ts';
import type { AdapterHarness } from './adapter-conformance.ts';
import { type AdapterCheck, adapterCheck, orderEvent, rejection } from './adapter-session.ts';
import type { ConformanceCheck } from './publisher-conformance.ts';

const at = new Date('2026-02-03T04:05:06.789Z');
const bigint = '9223372036854775807';

/** `outbox.admin` binds and reads more than `emit` does. */
export function administrationChecks<Tx>(harness: AdapterHarness<Tx>): ConformanceCheck[] {
  const check = (name: string, work: AdapterCheck<Tx>) => adapterCheck(harness, name, work);
  return [
    check('values are bound and read as pg does, outside of transactions', ({ client }) =>
      assertValues(client.db.side),
    ),
    check('values are bound and read as pg does, in a transaction', ({ client }) =>
      client.transaction((tx) => assertValues(client.db.inTransaction(tx))),
    ),
    check('the transaction of the adapter commits, or rolls back with the error of the work', async (session) => {
      const { db } = session.client;
      const insert = (tx: Tx, id: string) =>
        db.inTransaction(tx).query('insert into conformance_orders (id) values ($1)', [id]);
      const mistake = new Error('changed my mind');
      assert.equal(
        await db.transaction(async (tx) => {
          await insert(tx, '1');
          return 'done';
        }),
        'done',
      );
      const failed = db.transaction(async (tx) => {
        await insert(tx, '2');
        throw mistake;
      });
      assert.equal(await rejection(failed, 'the error of the work'), mistake);
      await session.assertCommitted({ orders: ['1'], payloads: [] });
    }),
    check('outbox.admin finds, lists, counts, replays and cancels events', async ({ client, outbox }) => {
      const { admin } = outbox;
      const before = new Date(Date.now() - 3_600_000);
      const ids = await client.transaction((tx) =>
        outbox.emit(tx, [
          orderEvent('1', { n: 1 }),
          orderEvent('2', { n: 2 }),
          { ...orderEvent('3'), delayMs: 3_600_000 },
        ]),
      );
      const [first = '', second = '', delayed = ''] = ids;
      const found = await admin.find(first);
      assert.deepEqual({ id: found?.id, status: found?.status }, { id: first, status: 'PENDING' });
      assert.ok(found?.createdAt instanceof Date && found.createdAt > before, 'createdAt is a Date');
      const { events } = await admin.list({ from: before, status: 'PENDING', limit: 2, order: 'oldest' });
      assert.deepEqual(
        events.map(({ id }) => id),
        [first, second],
      );
      assert.equal((await admin.counts()).pending, 3, 'the number of pending events');
      assert.equal((await admin.makeDue({ ids: [delayed] })).count, 1, 'events made due');
      assert.equal((await admin.cancel({ ids: [first, second] })).count, 2, 'events cancelled');
      assert.equal((await admin.retry({ ids: [first] })).count, 1, 'dead letters retried');
      await admin.pauseQueue('default', { reason: 'a test' });
      assert.deepEqual(
        (await admin.queues()).flatMap(({ name, pausedAt }) => (pausedAt instanceof Date ? [name] : [])),
        ['default'],
      );
      await admin.resumeQueue('default');
      const diagnosis = await admin.doctor();
      assert.ok(Array.isArray(diagnosis.findings), 'doctor() has findings');
    }),
  ];
}

/** Each `$n` anywhere and any number of times; a `?` is no placeholder. */
async function assertValues(db: Executor): Promise<void> {
  const { rows } = await db.query(
    `select $3::timestamptz as at, $1::integer as number, $2::text as text, $4::bigint[] as bigints, $5::text[] as texts,
            $6::boolean as flag, $7::double precision as fraction, $8::bigint as bigint, $9::timestamptz as nothing,
            $1::integer + 1 as next, '{"a": 1}'::jsonb ? 'a' as has_key, '$1 ?' as literal,
            $10::integer[] as numbers, '{"b": [null]}'::jsonb as json`,
    [7, 'Grüße ? $1', at, ['1', bigint], ['a', 'b,c', '"', ''], true, 0.5, bigint, null, [1, 2]],
  );
  assert.equal(rows.length, 1, 'the number of rows');
  const [row] = rows;
  assert.deepEqual(row === undefined ? undefined : { ...row }, {
    at,
    number: 7,
    text: 'Grüße ? $1',
    bigints: ['1', bigint],
    texts: ['a', 'b,c', '"', ''],
    flag: true,
    fraction: 0.5,
    bigint,
    nothing: null,
    next: 8,
    has_key: true,
    literal: '$1 ?',
    numbers: [1, 2],
    json: { b: [null] },
  });
  const none = await db.query('select 1 where false');
  assert.deepEqual([...none.rows], [], 'no rows');
}
