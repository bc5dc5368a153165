import assert from 'node:assert/strict';
import type { Executor } from '../database/executor.ts';
import type { AdapterHarness } from './adapter-conformance.ts';
import { type AdapterCheck, adapterCheck, orderEvent, rejection } from './adapter-session.ts';
import type { ConformanceCheck } from './publisher-conformance.ts';

/** What `outbox.admin` does, beyond what `emit` needs. */
export function administrationChecks<Tx>(harness: AdapterHarness<Tx>): ConformanceCheck[] {
  const check = (name: string, work: AdapterCheck<Tx>) => adapterCheck(harness, name, work);
  return [
    check('texts are bound and read unchanged, outside of transactions', ({ client }) => assertValues(client.db.side)),
    check('texts are bound and read unchanged, in a transaction', ({ client }) =>
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
      const { operations } = await admin.audit();
      assert.deepEqual(
        operations.map(({ action, finishedAt }) => [action, finishedAt instanceof Date]),
        ['resumeQueue', 'pauseQueue', 'retry', 'cancel', 'makeDue'].map((action) => [action, true]),
        'the audit has every operation with its end',
      );
      const diagnosis = await admin.doctor();
      assert.ok(Array.isArray(diagnosis.findings), 'doctor() has findings');
    }),
  ];
}

/** Each `$n` anywhere and any number of times; in a literal it is no placeholder, and `?` never is one. */
async function assertValues(db: Executor): Promise<void> {
  const { rows } = await db.query(
    `select $2::text as second, $1::text as first, $3::text as nothing, $1::text || '!' as again, '$1 ?' as literal,
            ('{"a": 1}'::jsonb ? $4::text)::text as has_key -- $9 ?`,
    ['Grüße ? $1', '{"json": [null, "9223372036854775807"]}', null, 'a'],
  );
  assert.deepEqual(
    rows.map((row) => ({ ...row })),
    [
      {
        second: '{"json": [null, "9223372036854775807"]}',
        first: 'Grüße ? $1',
        nothing: null,
        again: 'Grüße ? $1!',
        literal: '$1 ?',
        has_key: 'true',
      },
    ],
  );
  const none = await db.query('select 1 where false');
  assert.deepEqual([...none.rows], [], 'no rows');
}
