import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { createInbox } from '../inbox/inbox.ts';
import type { AdapterHarness } from './adapter-conformance.ts';
import {
  type AdapterCheck,
  type AdapterSession,
  adapterCheck,
  orderEvent,
  rejection,
  waitUntil,
} from './adapter-session.ts';
import type { ConformanceCheck } from './publisher-conformance.ts';

const clientTimeoutMs = 300;

const rolledBack = 'a rejection: PostgreSQL answers COMMIT with ROLLBACK';

/** A transaction whose end the work does not decide: nothing of it is committed. */
export function faultChecks<Tx>(harness: AdapterHarness<Tx>): ConformanceCheck[] {
  const check = (name: string, work: AdapterCheck<Tx>) => adapterCheck(harness, name, work);
  return [
    check('a connection that is lost before commit loses the event', async (session) => {
      const { client, outbox } = session;
      const failed = client.transaction(async (tx) => {
        const pid = await lockOf(session, tx);
        await outbox.emit(tx, orderEvent('1'));
        await harness.database.query('select pg_terminate_backend($1::integer)', [pid]);
        await sessionEnded(harness, pid);
      });
      await rejection(failed, 'a rejection: COMMIT cannot be sent');
      await session.assertNothingCommitted();
      await client.transaction((tx) => outbox.emit(tx, orderEvent('2')));
      await session.assertCommitted({ orders: [], payloads: [{ id: '2' }] });
    }),
    check('emit rejects when the connection was lost before it', async (session) => {
      const { client, outbox } = session;
      const failed = client.transaction(async (tx) => {
        const pid = await lockOf(session, tx);
        await harness.database.query('select pg_terminate_backend($1::integer)', [pid]);
        await sessionEnded(harness, pid);
        await rejection(outbox.emit(tx, orderEvent('1')), 'a rejection of emit');
      });
      await rejection(failed, 'a rejection of the transaction');
      await session.assertNothingCommitted();
    }),
    check('inbox.transaction rejects when its work has ignored the error of a statement', async (session) => {
      const { client } = session;
      const inbox = createInbox({ db: client.db });
      const event = { consumer: 'conformance', eventId: randomUUID() };
      const failed = inbox.transaction(event, async (tx) => {
        await session.insertOrder(tx, '1');
        await ignored(client.query(tx, 'select 1 / 0'));
      });
      await rejection(failed, rolledBack);
      await session.assertNothingCommitted();
      assert.deepEqual(await inbox.transaction(event, () => 'done'), { duplicate: false, result: 'done' });
    }),
    check('outbox.transaction rejects when its work has ignored the error of a statement', async (session) => {
      const { client, outbox } = session;
      const afterAnEvent = outbox.transaction(async (tx) => {
        await outbox.emit(tx, orderEvent('1'));
        await ignored(client.query(tx, 'select 1 / 0'));
      });
      await rejection(afterAnEvent, rolledBack);
      const withoutEvents = outbox.transaction(async (tx) => {
        await session.insertOrder(tx, '1');
        await ignored(client.query(tx, 'select 1 / 0'));
      });
      await rejection(withoutEvents, rolledBack);
      await session.assertNothingCommitted();
    }),
    check('outbox.transaction rejects when its work has ignored that an event was refused', async (session) => {
      const { client, outbox } = session;
      const event = { ...orderEvent('1'), id: randomUUID() };
      await client.transaction((tx) => outbox.emit(tx, event));
      const failed = outbox.transaction(async (tx) => {
        await session.insertOrder(tx, '1');
        await ignored(outbox.emit(tx, event)); // Its id exists.
      });
      await rejection(failed, rolledBack);
      await session.assertCommitted({ orders: [], payloads: [{ id: '1' }] });
    }),
    check('a transaction that the server has timed out takes no event', async (session) => {
      const { client, outbox } = session;
      const failed = client.transaction(async (tx) => {
        const pid = await lockOf(session, tx);
        await outbox.emit(tx, orderEvent('1'));
        await client.query(tx, `set local idle_in_transaction_session_timeout = '50ms'`);
        await sessionEnded(harness, pid);
        await rejection(outbox.emit(tx, orderEvent('1')), 'a rejection of emit');
      });
      await rejection(failed, 'a rejection of the transaction');
      await session.assertNothingCommitted();
    }),
    check('a transaction that the client has timed out takes no event', async (session) => {
      const { client, outbox } = session;
      if (!client.transactionWithTimeout) return;
      let kept: { tx: Tx } | undefined;
      const failed = client.transactionWithTimeout(clientTimeoutMs, async (tx) => {
        kept = { tx };
        const pid = await lockOf(session, tx);
        await outbox.emit(tx, orderEvent('1'));
        await transactionEnded(harness, pid);
        await rejection(outbox.emit(tx, orderEvent('1')), 'a rejection of emit');
      });
      await rejection(failed, 'a rejection of the transaction');
      assert.ok(kept);
      await rejection(outbox.emit(kept.tx, orderEvent('1')), 'a rejection of emit');
      await session.assertNothingCommitted();
    }),
  ];
}

async function ignored(promise: PromiseLike<unknown>): Promise<void> {
  await promise.then(
    () => {},
    () => {},
  );
}

/** The process id of the server that works for the transaction: the one that has written this order. */
async function lockOf<Tx>({ harness, client }: AdapterSession<Tx>, tx: Tx): Promise<number> {
  await client.query(tx, 'select pg_advisory_xact_lock(710550, 1)');
  const { rows } = await harness.database.query(
    `select pid from pg_locks where locktype = 'advisory' and classid = 710550 and database =
       (select oid from pg_database where datname = current_database())`,
  );
  const pid = rows[0]?.pid;
  assert.equal(typeof pid, 'number', 'the transaction runs on the server');
  return pid as number;
}

function sessionEnded<Tx>({ database }: AdapterHarness<Tx>, pid: number): Promise<void> {
  return waitUntil(async () => {
    const { rows } = await database.query('select from pg_stat_activity where pid = $1::integer', [pid]);
    return rows.length === 0;
  }, 'the server has ended the session');
}

function transactionEnded<Tx>({ database }: AdapterHarness<Tx>, pid: number): Promise<void> {
  return waitUntil(async () => {
    const { rows } = await database.query(`select from pg_locks where pid = $1::integer and classid = 710550`, [pid]);
    return rows.length === 0;
  }, 'the client has ended the transaction');
}
