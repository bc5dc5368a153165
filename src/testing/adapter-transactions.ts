import assert from 'node:assert/strict';
import type { Isolation } from '../emit/isolation.ts';
import type { AdapterHarness } from './adapter-conformance.ts';
import { type AdapterCheck, adapterCheck, orderEvent, rejection } from './adapter-session.ts';
import type { ConformanceCheck } from './publisher-conformance.ts';

const concurrentTransactions = 12;

/** Values that clients are known to change on their way: JSON, arrays, dates, placeholders. */
const payloadsToKeep: readonly unknown[] = [
  { text: 'Grüße, 注文 №1, 🧾', quotes: `'"\\`, lines: 'a\nb\tc', empty: '' },
  { bigint: '9223372036854775807', digits: 9007199254740991, small: 0.1, large: 1e21, negative: -1 },
  { nothing: null, nested: { list: [null, { deep: null }], none: {} }, list: [] },
  { placeholders: '$1 ? ?? :name @name %s', braces: '{1,2}', key: { '?': '$2', 'a.b': 1 } },
  [1, 'two', null, [3]],
  ['{', '"'],
  'a text',
  '{"text": "that looks like JSON"}',
  '',
  42,
  true,
  null,
];

const levels: readonly Isolation[] = ['read committed', 'repeatable read', 'serializable'];

/** Events are committed with the transaction they were emitted in. */
export function transactionChecks<Tx>(harness: AdapterHarness<Tx>): ConformanceCheck[] {
  const check = (name: string, work: AdapterCheck<Tx>) => adapterCheck(harness, name, work);
  return [
    check('an event is committed with its transaction', async ({ client, outbox, insertOrder, ...session }) => {
      const id = await client.transaction(async (tx) => {
        await insertOrder(tx, '1');
        return outbox.emit(tx, orderEvent('1'));
      });
      await session.assertCommitted({ orders: ['1'], payloads: [{ id: '1' }] });
      const { rows } = await harness.database.query('select id::text as id from postcommit.outbox_events');
      assert.deepEqual(rows, [{ id }], 'the id of the event');
    }),
    check('an event is rolled back with its transaction', async ({ client, outbox, insertOrder, ...session }) => {
      const mistake = new Error('changed my mind');
      const failed = client.transaction(async (tx) => {
        await insertOrder(tx, '1');
        await outbox.emit(tx, orderEvent('1'));
        throw mistake;
      });
      assert.equal(await rejection(failed, 'the error of the work'), mistake);
      await session.assertNothingCommitted();
    }),
    check('several events are written in order', async ({ client, outbox, ...session }) => {
      await client.transaction(async (tx) => {
        await outbox.emit(tx, orderEvent('1', 1));
        await outbox.emit(tx, [orderEvent('1', 2), orderEvent('2', 3), orderEvent('1', 4)]);
        await outbox.emit(tx, []);
        await outbox.emit(tx, orderEvent('1', 5));
      });
      await session.assertCommitted({ orders: [], payloads: [1, 2, 3, 4, 5] });
    }),
    check('emitOnce writes an id once', async ({ client, outbox, ...session }) => {
      const event = { ...orderEvent('1'), id: '0192f0c1-8f57-7000-8000-000000000001' };
      const written: boolean[] = [];
      for (let n = 0; n < 2; n++) {
        written.push((await client.transaction((tx) => outbox.emitOnce(tx, event))).written);
      }
      assert.deepEqual(written, [true, false], 'whether the event was written');
      await session.assertCommitted({ orders: [], payloads: [{ id: '1' }] });
    }),
    check('JSON payloads arrive unchanged, one by one', async ({ client, outbox, ...session }) => {
      for (const payload of payloadsToKeep) await client.transaction((tx) => outbox.emit(tx, orderEvent('1', payload)));
      await session.assertCommitted({ orders: [], payloads: [...payloadsToKeep] });
    }),
    check('JSON payloads arrive unchanged, all in one call', async ({ client, outbox, ...session }) => {
      await client.transaction((tx) =>
        outbox.emit(
          tx,
          payloadsToKeep.map((payload) => orderEvent('1', payload)),
        ),
      );
      await session.assertCommitted({ orders: [], payloads: [...payloadsToKeep] });
    }),
    check('a date in a payload is its ISO text', async ({ client, outbox, ...session }) => {
      const at = new Date('2026-02-03T04:05:06.789Z');
      await client.transaction((tx) => outbox.emit(tx, orderEvent('1', { at })));
      await session.assertCommitted({ orders: [], payloads: [{ at: at.toISOString() }] });
    }),
    check('headers and texts beyond ASCII arrive unchanged', async ({ client, outbox }) => {
      const headers = { 'x-customer': 'Jürgen ?', 'x-json': '{"a": ["$1"]}', 'x-empty': '' };
      await client.transaction((tx) =>
        outbox.emit(tx, { type: 'order.größe', aggregate: ['Auftrag ?', "№ 1 '"], payload: {}, headers }),
      );
      const { rows } = await harness.database.query(
        `select event_type, aggregate_type, aggregate_id, headers::text as headers from postcommit.outbox_events`,
      );
      const [row] = rows as { headers: string }[];
      assert.deepEqual(
        { ...row, headers: JSON.parse(row?.headers ?? 'null') },
        { event_type: 'order.größe', aggregate_type: 'Auftrag ?', aggregate_id: "№ 1 '", headers },
      );
    }),
    check('a rollback to a savepoint removes the events after it', async ({ client, outbox, ...session }) => {
      await client.transaction(async (tx) => {
        await outbox.emit(tx, orderEvent('1', 1));
        await client.query(tx, 'savepoint conformance');
        await outbox.emit(tx, orderEvent('1', 2));
        await client.query(tx, 'rollback to savepoint conformance');
        await outbox.emit(tx, orderEvent('1', 3));
      });
      await session.assertCommitted({ orders: [], payloads: [1, 3] });
    }),
    check('a nested transaction that fails removes its events', async ({ client, outbox, insertOrder, ...session }) => {
      const { nested } = client;
      if (!nested) return;
      await client.transaction(async (tx) => {
        await outbox.emit(tx, orderEvent('1', 1));
        const failed = nested(tx, async (inner) => {
          await insertOrder(inner, '1');
          await outbox.emit(inner, orderEvent('1', 2));
          throw new Error('changed my mind');
        });
        await rejection(failed, 'the error of the nested work');
        await nested(tx, async (inner) => {
          await insertOrder(inner, '2');
          await outbox.emit(inner, orderEvent('1', 3));
        });
        await outbox.emit(tx, orderEvent('1', 4));
      });
      await session.assertCommitted({ orders: ['2'], payloads: [1, 3, 4] });
    }),
    check('a nested transaction is rolled back with the outer one', async ({ client, outbox, ...session }) => {
      const { nested } = client;
      if (!nested) return;
      const failed = client.transaction(async (tx) => {
        await nested(tx, (inner) => outbox.emit(inner, orderEvent('1')));
        throw new Error('changed my mind');
      });
      await rejection(failed, 'the error of the work');
      await session.assertNothingCommitted();
    }),
    check('concurrent transactions of a pool keep their events apart', async ({ client, outbox, ...session }) => {
      const ids = Array.from({ length: concurrentTransactions }, (_, n) => String(n).padStart(2, '0'));
      await Promise.allSettled(
        ids.map((id, n) =>
          client.transaction(async (tx) => {
            await session.insertOrder(tx, id);
            await outbox.emit(tx, orderEvent(id));
            if (n % 3 === 0) throw new Error('changed my mind');
          }),
        ),
      );
      const kept = ids.filter((_, n) => n % 3 !== 0);
      const found = (await session.payloads()) as { id: string }[];
      assert.deepEqual(found.map(({ id }) => id).sort(), kept, 'the committed events');
      await session.assertCommitted({ orders: kept, payloads: found });
    }),
    check('events of one aggregate are in commit order', async ({ client, outbox, ...session }) => {
      await harness.database.query('create table if not exists conformance_steps (position serial, step integer)');
      await harness.database.query('truncate conformance_steps');
      await Promise.all(
        Array.from({ length: concurrentTransactions }, (_, step) =>
          client.transaction(async (tx) => {
            await outbox.emit(tx, orderEvent('1', step));
            // Other transactions wait in emit() until this one has committed, so steps are taken in commit order.
            await client.query(tx, 'insert into conformance_steps (step) values ($1::text::integer)', [String(step)]);
          }),
        ),
      );
      const { rows } = await harness.database.query('select step from conformance_steps order by position');
      assert.equal(rows.length, concurrentTransactions, 'the number of committed transactions');
      assert.deepEqual(
        await session.payloads(),
        rows.map(({ step }) => step),
        'the order of the events',
      );
    }),
    ...isolationChecks(harness, check),
    ...outboxTransactionChecks(check),
  ];
}

type Check<Tx> = (name: string, work: AdapterCheck<Tx>) => ConformanceCheck;

const isolationSql = `insert into conformance_orders (id) values (current_setting('transaction_isolation'))`;

function isolationChecks<Tx>(harness: AdapterHarness<Tx>, check: Check<Tx>): ConformanceCheck[] {
  return levels.map((isolation) =>
    check(`an event is written in a ${isolation} transaction`, async ({ client, outbox, ...session }) => {
      const work = async (tx: Tx) => {
        await client.query(tx, isolationSql);
        await outbox.emit(tx, orderEvent('1'));
      };
      await client.transaction(work, { isolation });
      await session.assertCommitted({ orders: [isolation], payloads: [{ id: '1' }] });
      await harness.database.query('truncate conformance_orders');
      await outbox.transaction(
        async (tx, emit) => {
          await client.query(tx, isolationSql);
          await emit(orderEvent('1', 2));
        },
        { isolation },
      );
      await session.assertCommitted({ orders: [isolation], payloads: [{ id: '1' }, 2] });
    }),
  );
}

function outboxTransactionChecks<Tx>(check: Check<Tx>): ConformanceCheck[] {
  return [
    check('outbox.transaction commits the work and its events', async ({ client, outbox, insertOrder, ...session }) => {
      const answer = await outbox.transaction(async (tx, emit) => {
        await insertOrder(tx, '1');
        await emit(orderEvent('1', 1));
        await outbox.emit(tx, orderEvent('1', 2));
        await client.query(tx, 'savepoint conformance');
        await emit([orderEvent('1', 3), orderEvent('2', 4)]);
        return 'done';
      });
      assert.equal(answer, 'done');
      await session.assertCommitted({ orders: ['1'], payloads: [1, 2, 3, 4] });
    }),
    check('outbox.transaction rolls back when the work fails', async ({ outbox, insertOrder, ...session }) => {
      const mistake = new Error('changed my mind');
      const failed = outbox.transaction(async (tx, emit) => {
        await insertOrder(tx, '1');
        await emit(orderEvent('1', 1));
        await outbox.emit(tx, orderEvent('1', 2));
        throw mistake;
      });
      assert.equal(await rejection(failed, 'the error of the work'), mistake);
      await session.assertNothingCommitted();
    }),
    check('outbox.transaction takes statements that are all known', async ({ outbox, ...session }) => {
      const statements = [{ text: 'insert into conformance_orders (id) values ($1)', values: ['1'] }];
      await outbox.transaction(statements, orderEvent('1'));
      await session.assertCommitted({ orders: ['1'], payloads: [{ id: '1' }] });
      await rejection(outbox.transaction(statements, orderEvent('2')), 'the error of the repeated INSERT');
      await session.assertCommitted({ orders: ['1'], payloads: [{ id: '1' }] });
    }),
  ];
}
