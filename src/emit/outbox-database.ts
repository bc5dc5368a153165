import type { ConnectionOptions } from '../database/connection-options.ts';
import type { Executor, Statement } from '../database/executor.ts';
import type { Isolation } from './isolation.ts';

/**
 * A database client as the outbox uses it. An adapter is a function that makes one from the client's own objects: `fromPg`
 * for `pg`, and a few lines for anything else that can run SQL in a transaction. `Tx` is what the client's users call a
 * transaction: it is the first argument of `outbox.emit(tx, …)`.
 *
 * An adapter runs the SQL it gets as it is, with `$1`, `$2`, … bound to `values`, and returns the rows as objects by column
 * name. Values are texts and nulls, and only texts are read, because every client passes text unchanged. In the statements of
 * `emit` each `$n` occurs once and in order; others may use one again. An error of the server keeps its SQLSTATE as `code`, or
 * has a code of Postcommit.
 *
 * @example
 * import type { Executor, OutboxDatabase } from 'postcommit';
 *
 * // What a client offers: it runs SQL, and it runs a callback in a transaction.
 * interface Client {
 *   run(text: string, values: unknown[]): Promise<Record<string, unknown>[]>;
 *   begin<T>(work: (tx: Client) => Promise<T>): Promise<T>;
 * }
 *
 * function fromClient(client: Client): OutboxDatabase<Client> {
 *   const executor = (handle: Client): Executor => ({
 *     query: async (text, values = []) => ({ rows: await handle.run(text, values) }),
 *   });
 *   return { side: executor(client), inTransaction: executor, transaction: (work) => client.begin(work) };
 * }
 */
export interface OutboxDatabase<Tx, BatchStatement = never> {
  /** Runs statements of the outbox's own, outside of the caller's transactions: a pool, or the client's root object. */
  readonly side: Executor;

  /**
   * Returns what runs statements in the transaction `tx`. Throws POSTCOMMIT_E_NOT_A_TRANSACTION for a handle that is
   * certainly not a transaction; anything uncertain is for the server to find out, see `isOpen`.
   *
   * One thing the server cannot find out: a client whose finished handle still runs statements, on a connection that may be in
   * another transaction by then. An adapter for such a client must refuse the handle here.
   */
  inTransaction(tx: Tx): Executor;

  /** Runs `work` in a new transaction. Commits when it resolves, rolls back when it rejects, and then rejects with its error. */
  transaction<T>(work: (tx: Tx) => Promise<T>): Promise<T>;

  /**
   * Whether `tx` is certainly an open transaction at this moment, and stays one until the next statement is sent. Default:
   * not known. Then `emit(tx, …)` writes an event at once only if the transaction has written something before, which the server
   * knows. Otherwise that statement puts a marker into the transaction, and a second one writes the event if it finds this
   * marker: so an event is never written outside of a transaction, or in another one.
   */
  isOpen?(tx: Tx): boolean;

  /**
   * Calls `callback` once when the transaction has ended. After a rollback it may be called too: relays then look at the
   * queue once for nothing. Without it, relays find the events of `outbox.emit(tx, …)` by polling, within `pollIntervalMs`;
   * `outbox.transaction` notifies them in any case. The same callback may be given several times for one transaction.
   */
  afterEnd?(tx: Tx, callback: () => void): void;

  /**
   * How the client itself connects, so that a relay in the same process needs no configuration of its own. `undefined`, or left
   * out: the client does not expose it, and the relay must be given it.
   */
  connection?(): ConnectionOptions | undefined;

  /**
   * Only for clients that run a list of statements as one transaction, as `prisma.$transaction([…])` does: makes an element
   * of such a list, which `outbox.statement(event)` returns. The client must not be able to run it outside of a list.
   */
  statement?(event: Promise<BatchedEvent>): BatchStatement;

  /** Only for clients that can send a statement before the one before is answered. `outbox.transaction` uses it if present. */
  readonly pipelined?: PipelinedTransactions<Tx>;
}

/** An event that was checked, as a statement of a list that commits as one transaction. */
export interface BatchedEvent extends Required<Statement> {
  readonly id: string;
  /** To be called once the list has committed: wakes relays. */
  committed(): void;
}

/** Transactions whose statements travel together. `fromPg` has it. */
export interface PipelinedTransactions<Tx> {
  /** Opens a transaction for `outbox.transaction(work)`. */
  begin(options: TransactionOptions): Promise<OpenTransaction<Tx>>;
  /**
   * Runs statements that are all known in a transaction of their own, and `last` after them: in one round trip if possible.
   * `last` gets the marker that was set with BEGIN, or `null` where nothing can end the transaction before it. Rejects
   * unless the commit is certain. `afterCommitSql` is sent after COMMIT; its result is ignored and not waited for.
   */
  run(
    statements: readonly Statement[],
    last: ((marker: string | null) => Statement) | undefined,
    options: TransactionOptions,
    afterCommitSql?: string,
  ): Promise<void>;
  /**
   * Runs `work` in a new READ COMMITTED transaction that starts with `first`, an INSERT with neither parameters nor
   * RETURNING, in the round trip of BEGIN. `work` gets the number of rows that `first` inserted. Commits and rolls back as
   * `OutboxDatabase.transaction` does.
   */
  transactionWith<T>(first: string, work: (tx: Tx, inserted: number) => Promise<T>): Promise<T>;
  /**
   * Runs an INSERT with neither parameters nor RETURNING, and resolves with the number of rows that it inserted, or with
   * `undefined` if that is not known. Returns `undefined`, and sends nothing, for a client that does not count rows.
   */
  insert(tx: Tx, text: string): Promise<number | undefined> | undefined;
}

export interface TransactionOptions {
  /** Default: the database's own, usually read committed. */
  isolation?: Isolation;
  /**
   * Send statements without waiting for the answer to the one before, which saves two round trips. Turn it off to use
   * pg-cursor or pg-query-stream inside the transaction. Clients that cannot pipeline ignore it. Default `true`.
   */
  pipeline?: boolean;
}

export interface OpenTransaction<Tx> {
  readonly tx: Tx;
  /** Set with BEGIN. A statement that carries it fails once the transaction has ended, also inside of another one. */
  readonly transactionMarker: string;
  /**
   * Sends `last` and then COMMIT, in one round trip if possible. Rejects unless the commit is certain. `afterCommitSql` is
   * sent after it as in `run`.
   */
  commit(last?: Statement, afterCommitSql?: string): Promise<void>;
  rollback(): Promise<void>;
}
