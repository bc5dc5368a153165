import type { Executor } from '../database/executor.ts';
import type { OutboxDatabase } from '../emit/outbox-database.ts';
import { PostcommitError } from '../errors.ts';
import { executorInTransaction } from './pg/borrowed-client.ts';
import type { PgClient } from './pg/client.ts';
import { postgresJsExecutor } from './postgres-js.ts';
import { notATransaction, wrongClient } from './refusal.ts';
import { TrackedTransactions } from './tracked-transactions.ts';
import { withDriverErrors } from './transaction-errors.ts';

/** The part of a Drizzle transaction that is used. Structural, so that any version fits. */
export interface DrizzleTransaction {
  /** Only transactions have it. */
  rollback(): never;
  // biome-ignore lint/suspicious/noExplicitAny: the type depends on the schema.
  transaction(...args: any[]): Promise<any>;
}

/** The part of a Drizzle database that is used. */
export interface DrizzleDatabase {
  // biome-ignore lint/suspicious/noExplicitAny: see DrizzleTransaction.
  transaction(...args: any[]): Promise<any>;
}

/** What `db.transaction()` passes to its callback. */
export type DrizzleTransactionOf<Db extends DrizzleDatabase> = Db['transaction'] extends (
  // biome-ignore lint/suspicious/noExplicitAny: only the first parameter matters.
  work: (tx: infer Tx) => any,
  // biome-ignore lint/suspicious/noExplicitAny: see above.
  ...rest: any[]
  // biome-ignore lint/suspicious/noExplicitAny: see above.
) => any
  ? Tx extends DrizzleTransaction
    ? Tx
    : DrizzleTransaction
  : DrizzleTransaction;

/** What a Drizzle session runs its statements with: a client or pool of `pg`, or `sql` of postgres.js. */
interface DriverClient {
  // biome-ignore lint/suspicious/noExplicitAny: rows.
  query?(text: string, values?: unknown[]): Promise<any>;
  unsafe?: Parameters<typeof postgresJsExecutor>[0]['unsafe'];
}

/**
 * Emits through Drizzle, with its drivers node-postgres and postgres.js. `emit` takes what `db.transaction()` passes to its
 * callback, and nested transactions.
 *
 * A finished handle of Drizzle still runs statements, on a connection that may be in another transaction. So `transaction` of
 * this `db` is replaced by one that also notes which transactions are open. It does the same otherwise.
 *
 * @example
 * import { drizzle } from 'drizzle-orm/node-postgres';
 * import { integer, pgTable, text } from 'drizzle-orm/pg-core';
 * import { createOutbox } from 'postcommit';
 * import { fromDrizzle } from 'postcommit/drizzle';
 *
 * const orders = pgTable('orders', { id: text().primaryKey(), total: integer().notNull() });
 * const db = drizzle(process.env.DATABASE_URL ?? '');
 * const outbox = createOutbox({ db: fromDrizzle(db) });
 *
 * await db.transaction(async (tx) => {
 *   await tx.insert(orders).values({ id, total });
 *   await outbox.emit(tx, { type: 'order.created', aggregate: ['order', id], payload: { id, total } });
 * });
 */
export function fromDrizzle<Db extends DrizzleDatabase>(db: Db): OutboxDatabase<DrizzleTransactionOf<Db>> {
  if (typeof db?.transaction !== 'function') throw wrongClient('fromDrizzle() takes what drizzle() returns.');
  if (typeof (db as Partial<DrizzleTransaction>).rollback === 'function') {
    throw wrongClient('fromDrizzle() takes what drizzle() returns, and this is a transaction of it.');
  }
  const side = executor(db);
  const transactions = trackDrizzle(db);
  return {
    side,
    inTransaction(tx) {
      if (!transactions.isOpen(tx)) throw notATransaction(refusal(tx, transactions.has(tx)));
      refusePool(tx);
      if (isPostgresJs(tx)) return transactions.executor(tx, executor(tx));
      // The client of pg also tells of a transaction that was ended with raw SQL.
      return executorInTransaction(executor(tx) as PgClient);
    },
    transaction: (work) => withDriverErrors((begun) => db.transaction(begun), work, driverErrorOf),
    isOpen: (tx) => transactions.isOpen(tx),
    afterEnd: (tx, callback) => transactions.afterEnd(tx, callback),
  };
}

/**
 * Runs statements with the driver's client, where they are one round trip: on postgres.js, Drizzle prepares nothing, so the
 * driver asks the server for the types of the parameters first.
 */
function executor(handle: object): Executor {
  const client = clientOf(handle);
  if (isPostgresJs(handle)) return postgresJsExecutor(client as { unsafe: NonNullable<DriverClient['unsafe']> });
  if (typeof client?.query === 'function') return client as Executor;
  throw new PostcommitError(
    'POSTCOMMIT_E_PACKAGE_TOO_OLD',
    'fromDrizzle() needs drizzle-orm 0.45.1 or later with drizzle-orm/node-postgres or drizzle-orm/postgres-js.',
  );
}

function isPostgresJs(handle: object): boolean {
  return typeof clientOf(handle)?.unsafe === 'function';
}

/** Drizzle puts the driver's error of a statement, also of BEGIN, COMMIT and ROLLBACK, into one of its own, which has no code. */
function driverErrorOf(error: unknown): unknown {
  const { query, cause } = (error ?? {}) as { query?: unknown; cause?: unknown };
  return typeof query === 'string' && cause !== undefined ? cause : error;
}

function clientOf(handle: object): DriverClient | undefined {
  const { session, $client } = handle as { session?: { client?: DriverClient }; $client?: DriverClient };
  return session?.client ?? $client;
}

/** Before 0.45.1, Drizzle takes a pool of another copy of pg for a client, and spreads its transactions over connections. */
function refusePool(tx: object): void {
  if (typeof (clientOf(tx) as { totalCount?: unknown } | undefined)?.totalCount !== 'number') return;
  throw new PostcommitError(
    'POSTCOMMIT_E_PACKAGE_TOO_OLD',
    'Drizzle runs this transaction on a pool instead of one connection, because the pool is of another copy of pg than its own. Upgrade to drizzle-orm 0.45.1 or later, or install one copy of pg.',
  );
}

/** By the root object, so that several outboxes of one database replace `transaction` once. */
const tracked = new WeakMap<object, TrackedTransactions<DrizzleTransaction>>();

function trackDrizzle(db: DrizzleDatabase): TrackedTransactions<DrizzleTransaction> {
  const known = tracked.get(db);
  if (known) return known;
  const transactions = new TrackedTransactions<DrizzleTransaction>((tx) => track(tx, tx));
  const track = (handle: DrizzleDatabase, parent?: DrizzleTransaction) => {
    const { transaction } = handle;
    handle.transaction = (work, ...rest) =>
      transactions.run(work, (trackedWork) => transaction.call(handle, trackedWork, ...rest), parent);
  };
  track(db);
  tracked.set(db, transactions);
  return transactions;
}

function refusal(tx: unknown, wasOpen: boolean): string {
  const instead = 'Pass what db.transaction() passes to its callback.';
  if (wasOpen) return 'This transaction has ended.';
  const { transaction, rollback } = (tx ?? {}) as Partial<DrizzleTransaction>;
  if (typeof rollback === 'function') {
    return 'This transaction was not opened by transaction() of the database that was passed to fromDrizzle(), or before that call. Create an outbox for its own database.';
  }
  if (typeof transaction === 'function') return `This is a Drizzle database, not a transaction. ${instead}`;
  return `This is not a transaction of Drizzle. ${instead}`;
}
