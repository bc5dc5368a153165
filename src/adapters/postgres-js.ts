import type { Executor } from '../database/executor.ts';
import type { OutboxDatabase } from '../emit/outbox-database.ts';
import { notATransaction, wrongClient } from './refusal.ts';
import { TrackedTransactions } from './tracked-transactions.ts';

/** The part of a transaction of postgres.js that is used. Structural, so that any version fits. */
export interface PostgresJsTransaction {
  // biome-ignore lint/suspicious/noExplicitAny: postgres.js has types of its own for parameters.
  unsafe(text: string, values?: any[], options?: { prepare?: boolean }): PromiseLike<readonly any[]>;
  // biome-ignore lint/suspicious/noExplicitAny: its overloads are more than a structural type can follow.
  savepoint(...args: any[]): Promise<any>;
}

/** The part of what `postgres()` returns that is used. */
export interface PostgresJsSql {
  unsafe: PostgresJsTransaction['unsafe'];
  // biome-ignore lint/suspicious/noExplicitAny: see savepoint.
  begin(...args: any[]): Promise<any>;
}

/** What `sql.begin()` passes to its callback. */
export type PostgresJsTransactionOf<Sql extends PostgresJsSql> = Sql['begin'] extends (
  options: string,
  // biome-ignore lint/suspicious/noExplicitAny: only the first parameter matters.
  work: (tx: infer Tx) => any,
  // biome-ignore lint/suspicious/noExplicitAny: see above.
) => any
  ? Tx extends PostgresJsTransaction
    ? Tx
    : PostgresJsTransaction
  : PostgresJsTransaction;

/**
 * Emits through postgres.js. `emit` takes what `sql.begin()` and `savepoint()` pass to their callbacks.
 *
 * A finished handle of postgres.js still runs statements, on a connection that may be in another transaction. So `begin` of this
 * `sql` is replaced by one that also notes which transactions are open. It does the same otherwise.
 *
 * @example
 * import postgres from 'postgres';
 * import { createOutbox } from 'postcommit';
 * import { fromPostgresJs } from 'postcommit/postgres-js';
 *
 * const sql = postgres(process.env.DATABASE_URL ?? '');
 * const outbox = createOutbox({ db: fromPostgresJs(sql) });
 *
 * await sql.begin(async (tx) => {
 *   await tx`insert into orders (id, total) values (${id}, ${total})`;
 *   await outbox.emit(tx, { type: 'order.created', aggregate: ['order', id], payload: { id, total } });
 * });
 */
export function fromPostgresJs<Sql extends PostgresJsSql>(sql: Sql): OutboxDatabase<PostgresJsTransactionOf<Sql>> {
  if (typeof sql?.unsafe !== 'function' || typeof sql.begin !== 'function') {
    throw wrongClient('fromPostgresJs() takes what postgres() returns.');
  }
  const transactions = trackPostgresJs(sql);
  return {
    side: postgresJsExecutor(sql),
    inTransaction(tx) {
      if (!transactions.isOpen(tx)) throw notATransaction(refusal(sql, tx, transactions.has(tx)));
      return transactions.executor(tx, postgresJsExecutor(tx));
    },
    transaction: (work) => sql.begin(work),
    isOpen: (tx) => transactions.isOpen(tx),
    afterEnd: (tx, callback) => transactions.afterEnd(tx, callback),
  };
}

/**
 * Prepared, because postgres.js otherwise asks the server for the types of the parameters first, each time: a round trip more.
 * It prepares its own statements too, unless the option `prepare` is false.
 */
export function postgresJsExecutor(sql: Pick<PostgresJsSql, 'unsafe'>): Executor {
  return {
    query: async (text, values = []) => ({
      rows: [...(await (values.length > 0 ? sql.unsafe(text, values, { prepare: true }) : sql.unsafe(text)))],
    }),
  };
}

/** By the root object, so that several outboxes of one client replace `begin` once. */
const tracked = new WeakMap<object, TrackedTransactions<PostgresJsTransaction>>();

function trackPostgresJs(sql: PostgresJsSql): TrackedTransactions<PostgresJsTransaction> {
  const known = tracked.get(sql);
  if (known) return known;
  const transactions = new TrackedTransactions<PostgresJsTransaction>((tx) => {
    const { savepoint } = tx;
    tx.savepoint = (...args) => tracking(args, (given) => savepoint.apply(tx, given), tx);
  });
  // begin(work), begin(options, work), and savepoint() with an optional name alike. Anything else is theirs to refuse.
  // biome-ignore lint/suspicious/noExplicitAny: see PostgresJsSql.
  const tracking = (args: any[], begin: (args: any[]) => Promise<any>, parent?: PostgresJsTransaction) => {
    const work = args.at(-1);
    if (typeof work !== 'function') return begin(args);
    return transactions.run(work, (trackedWork) => begin([...args.slice(0, -1), trackedWork]), parent);
  };
  const { begin } = sql;
  sql.begin = (...args) => tracking(args, (given) => begin.apply(sql, given));
  tracked.set(sql, transactions);
  return transactions;
}

function refusal(sql: unknown, tx: unknown, wasOpen: boolean): string {
  const instead = 'Pass what sql.begin() passes to its callback.';
  if (wasOpen) return 'This transaction has ended.';
  if (tx === sql) return `This is the sql object itself, which runs each statement on any connection. ${instead}`;
  const { unsafe, savepoint, begin } = (tx ?? {}) as Partial<PostgresJsTransaction & PostgresJsSql>;
  if (typeof savepoint === 'function') {
    return 'This transaction was not opened by sql.begin() of the object that was passed to fromPostgresJs(), or before that call. Create an outbox for its own database.';
  }
  if (typeof begin === 'function') return `This is a sql object, not a transaction. ${instead}`;
  if (typeof unsafe === 'function') return `This is a reserved connection, not a transaction. ${instead}`;
  return `This is not a transaction of postgres.js. ${instead}`;
}
