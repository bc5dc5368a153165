import assert from 'node:assert/strict';
import type { AdapterHarness } from './adapter-conformance.ts';
import {
  type AdapterCheck,
  adapterCheck,
  assertCode,
  orderEvent,
  payloadsIn,
  rejection,
  withOtherDatabase,
} from './adapter-session.ts';
import type { ConformanceCheck } from './publisher-conformance.ts';

/** What a harness promises at least. */
const poolConnections = 4;
const notATransaction = 'POSTCOMMIT_E_NOT_A_TRANSACTION';

/** An event is never written outside of a transaction. */
export function refusalChecks<Tx>(harness: AdapterHarness<Tx>): ConformanceCheck[] {
  const check = (name: string, work: AdapterCheck<Tx>) => adapterCheck(harness, name, work);
  return [
    check('a handle that is no transaction is refused', async ({ client, outbox, ...session }) => {
      const handles = Object.entries(client.notTransactions);
      assert.notEqual(handles.length, 0, 'notTransactions names at least the root object of the client');
      for (const [name, handle] of handles) {
        const error = await assertCode(outbox.emit(handle as Tx, orderEvent('1')), notATransaction);
        const { detail } = error as unknown as { detail: string };
        assert.notEqual(detail, '', `the error for ${name} must say what to pass instead`);
        await assertCode(outbox.emit(handle as Tx, [orderEvent('1'), orderEvent('2')]), notATransaction);
        const once = { ...orderEvent('1'), id: '0192f0c1-8f57-7000-8000-000000000001' };
        await assertCode(outbox.emitOnce(handle as Tx, once), notATransaction);
      }
      await session.assertNothingCommitted();
    }),
    check('anything else is refused', async ({ outbox, ...session }) => {
      for (const handle of [undefined, null, 'tx', 1, {}, () => {}, []]) {
        await assertCode(outbox.emit(handle as Tx, orderEvent('1')), notATransaction);
      }
      await session.assertNothingCommitted();
    }),
    check('a transaction that has committed is refused', async ({ client, outbox, ...session }) => {
      const { tx } = await client.transaction(async (tx) => {
        await outbox.emit(tx, orderEvent('1', 1));
        return { tx };
      });
      await assertCode(outbox.emit(tx, orderEvent('1', 2)), notATransaction);
      await session.assertCommitted({ orders: [], payloads: [1] });
    }),
    check('a transaction that was rolled back is refused', async ({ client, outbox, ...session }) => {
      let kept: { tx: Tx } | undefined;
      await rejection(
        client.transaction(async (tx) => {
          kept = { tx };
          await outbox.emit(tx, orderEvent('1'));
          throw new Error('changed my mind');
        }),
        'the error of the work',
      );
      assert.ok(kept);
      await assertCode(outbox.emit(kept.tx, orderEvent('1')), notATransaction);
      await session.assertNothingCommitted();
    }),
    check(
      'a finished transaction is refused while its connection is in another',
      async ({ client, outbox, ...session }) => {
        const { tx } = await client.transaction(async (tx) => ({ tx }));
        const others: Tx[] = [];
        let openAll = () => {};
        const allOpen = new Promise<void>((resolve) => {
          openAll = resolve;
        });
        // A pool gives the connection of the finished transaction to one of these.
        await Promise.all(
          Array.from({ length: poolConnections }, () =>
            client.transaction(async (other) => {
              await client.query(other, 'select 1');
              if (others.push(other) === poolConnections) openAll();
              await allOpen;
              // Where the connection itself is the handle, it now stands for the other transaction.
              if (!others.includes(tx)) await assertCode(outbox.emit(tx, orderEvent('1')), notATransaction);
            }),
          ),
        );
        await session.assertNothingCommitted();
      },
    ),
    check(
      'a finished nested transaction is refused, or writes in the outer one',
      async ({ client, outbox, ...session }) => {
        const { nested } = client;
        if (!nested) return;
        const outcome = await client.transaction(async (tx) => {
          const { inner } = await nested(tx, async (inner) => ({ inner }));
          return outbox.emit(inner, orderEvent('1')).then(
            () => 'written',
            (error) => error.code,
          );
        });
        if (outcome !== 'written') assert.equal(outcome, notATransaction);
        await session.assertCommitted({ orders: [], payloads: outcome === 'written' ? [{ id: '1' }] : [] });
      },
    ),
    check('a transaction of another database is refused', async (session) => {
      const { client, outbox } = session;
      await client.transaction((tx) => client.query(tx, 'select 1'));
      await withOtherDatabase(session, async (other) => {
        await other.transaction((tx) => assertCode(outbox.emit(tx, orderEvent('1')), notATransaction).then(() => {}));
      });
      await session.assertNothingCommitted();
      assert.deepEqual(await payloadsIn(harness.otherDatabase), [], 'the events in the other database');
    }),
    check('a transaction that has failed is refused', async ({ client, outbox, ...session }) => {
      const failed = client.transaction(async (tx) => {
        await rejection(client.query(tx, 'select 1/0'), 'a division by zero');
        await outbox.emit(tx, orderEvent('1'));
      });
      await rejection(failed, 'a rejection of the transaction');
      await session.assertNothingCommitted();
    }),
    check('an event that is refused does not fail the transaction', async ({ client, outbox, ...session }) => {
      await client.transaction(async (tx) => {
        await session.insertOrder(tx, '1');
        await assertCode(outbox.emit(tx, { ...orderEvent('1'), type: '' }), 'POSTCOMMIT_E_BAD_EVENT');
      });
      await session.assertCommitted({ orders: ['1'], payloads: [] });
    }),
  ];
}
