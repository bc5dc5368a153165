import type pg from 'pg';
import { describe, expect, onTestFinished, test, vi } from 'vitest';
import { createOutbox, type Outbox } from '../../src/index.ts';
import type { AdapterClient } from '../../src/testing/index.ts';
import { createTestDatabase, type TestDatabase } from '../support/database.ts';
import { createOrders, insertOrder, nothing, one, orderCreated, written } from '../support/orders.ts';
import { countNotifications } from './notifications.ts';

export type Connect<Tx> = (connectionString: string) => Promise<AdapterClient<Tx>>;

export interface Scene<Tx> {
  database: TestDatabase;
  client: AdapterClient<Tx>;
  outbox: Outbox<Tx>;
}

/** A client that is connected to a database with the table `orders`, until the test has finished. */
export async function ormScene<Tx>(connect: Connect<Tx>): Promise<Scene<Tx>> {
  const database = await createTestDatabase();
  await createOrders(database);
  const client = await connect(database.url);
  onTestFinished(async () => {
    await client.close();
    await database.close();
  });
  return { database, client, outbox: createOutbox({ db: client.db }) };
}

/**
 * What the conformance suite leaves open, and most of these clients do. `driver` is the `pg` that the client uses.
 */
export function runOrmChecks<Tx>(
  name: string,
  connect: Connect<Tx>,
  driver: typeof pg,
  { wakesAfterCommit = true, seesRawCommit = true } = {},
): void {
  describe(name, () => {
    test('an emit is one statement, also as the first of its transaction', async () => {
      const { client, outbox } = await ormScene(connect);
      const sent = vi.spyOn(driver.Client.prototype, 'query');
      onTestFinished(() => sent.mockRestore());
      const statements = await client.transaction(async (tx) => {
        sent.mockClear();
        await outbox.emit(tx, orderCreated('1'));
        await outbox.emit(tx, [orderCreated('2'), orderCreated('3')]);
        return sent.mock.calls.length;
      });
      expect(statements).toBe(2);
    });

    test.each(['commits', 'rolls back'])('an emit that was not awaited when its transaction %s', async (outcome) => {
      const { client, database, outbox } = await ormScene(connect);
      for (let ticks = 0; ticks < 12; ticks++) {
        let emitted: Promise<unknown> = Promise.resolve();
        await client
          .transaction(async (tx) => {
            await client.query(tx, insertOrder, [String(ticks)]);
            emitted = outbox.emit(tx, orderCreated(String(ticks))).catch((error: Error) => error);
            for (let n = 0; n < ticks; n++) await Promise.resolve();
            if (outcome === 'rolls back') throw new Error('changed my mind');
          })
          .catch((error: Error) => expect(error.message).toBe('changed my mind'));
        await emitted;
      }
      const { orders, events } = await written(database);
      expect(orders).toBe(outcome === 'commits' ? 12 : 0);
      if (outcome === 'rolls back') expect(events).toBe(0);
    });

    test('outbox.transaction says that the connection is lost where it is lost before COMMIT', async () => {
      const { client, database, outbox } = await ormScene(connect);
      const lost = outbox.transaction(async (tx) => {
        await outbox.emit(tx, orderCreated('1'));
        await endSessionOf(client, database, tx);
      });
      await expect(lost).rejects.toMatchObject({
        code: expect.stringMatching(/_(DATABASE_UNREACHABLE|CLIENT_CLOSED)$/),
      });
      expect(await written(database)).toEqual(nothing);
    });

    test('outbox.transaction passes on the error of the work, also one of the database', async () => {
      const { client, database, outbox } = await ormScene(connect);
      let thrown: unknown;
      const failed = outbox.transaction((tx) =>
        client.query(tx, 'select 1/0').catch((error: unknown) => {
          thrown = error;
          throw error;
        }),
      );
      await expect(failed).rejects.toSatisfy((error) => error === thrown);
      expect(await written(database)).toEqual(nothing);
    });

    test('errors of the database have codes', async () => {
      const { client, database, outbox } = await ormScene(connect);
      const id = '0192f0c1-8f57-7000-8000-000000000001';
      await client.transaction((tx) => outbox.emit(tx, { ...orderCreated('1'), id }));
      const again = client.transaction((tx) => outbox.emit(tx, { ...orderCreated('1'), id }));
      await expect(again).rejects.toMatchObject({ code: 'POSTCOMMIT_E_DUPLICATE_ID' });
      const aborted = client.transaction(async (tx) => {
        await client.query(tx, 'select 1/0').catch(() => {});
        await outbox.emit(tx, orderCreated('1'));
      });
      await expect(aborted).rejects.toMatchObject({ code: 'POSTCOMMIT_E_TRANSACTION_ABORTED' });
      await database.query('drop schema postcommit cascade');
      const missing = client.transaction((tx) => outbox.emit(tx, orderCreated('1')));
      await expect(missing).rejects.toMatchObject({ code: 'POSTCOMMIT_E_MIGRATION_MISSING' });
    });

    if (wakesAfterCommit) {
      test('relays are notified after the commit of the outermost transaction', async () => {
        const { client, database, outbox } = await ormScene(connect);
        const notifications = countNotifications();
        await client.transaction(async (tx) => {
          await client.query(tx, insertOrder, ['1']);
          await (client.nested?.(tx, (inner) => outbox.emit(inner, orderCreated('1'))) ??
            outbox.emit(tx, orderCreated('1')));
          expect(notifications()).toBe(0);
        });
        await expect.poll(notifications).toBe(1);
        expect(await written(database)).toEqual(one);
      });
    }

    if (seesRawCommit) {
      test('a transaction that was ended with raw SQL is refused', async () => {
        const { client, database, outbox } = await ormScene(connect);
        const outcome = client.transaction(async (tx) => {
          await client.query(tx, 'commit');
          await outbox.emit(tx, orderCreated('1'));
        });
        await expect(outcome).rejects.toMatchObject({ code: 'POSTCOMMIT_E_NOT_A_TRANSACTION' });
        expect(await written(database)).toEqual(nothing);
      });
    }

    test('a client without batches refuses outbox.statement', async () => {
      const { client, outbox } = await ormScene(connect);
      if ('statement' in client.db) return;
      expect(() => outbox.statement(orderCreated('1'))).toThrow(
        expect.objectContaining({ code: 'POSTCOMMIT_E_NO_BATCH' }),
      );
    });
  });
}

/** Ends the server process that works for the transaction, and waits for its end. */
async function endSessionOf<Tx>(client: AdapterClient<Tx>, database: TestDatabase, tx: Tx): Promise<void> {
  await client.query(tx, 'select pg_advisory_xact_lock(710551)');
  const [holder] = await database.query<{ pid: number }>(
    `select pid from pg_locks where locktype = 'advisory' and objid = 710551
       and database = (select oid from pg_database where datname = current_database())`,
  );
  await database.query('select pg_terminate_backend($1)', [holder?.pid]);
  await expect.poll(() => database.query('select from pg_stat_activity where pid = $1', [holder?.pid])).toEqual([]);
}
