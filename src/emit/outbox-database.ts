import type { Executor, Statement } from '../database/executor.ts';

/**
 * How the outbox talks to one kind of database client. One small file per client implements it (`fromPg`, …).
 * `Tx` is what that client's users call a transaction.
 */
export interface OutboxDatabase<Tx> {
  /**
   * Calls `send` with the statement runner of an open transaction, and refuses any other handle with a coded error.
   * Nothing may come between the check and the statement: where that cannot be ruled out, `send` gets a marker that this
   * adapter has set on the transaction, and the statement fails once the transaction has ended.
   */
  inTransaction<T>(tx: Tx, send: (executor: Executor, marker?: string) => Promise<T>): Promise<T>;
  /** For statements of the outbox's own, outside of the caller's transactions. */
  readonly side: Executor;
  /** Calls back once after the transaction has ended, however it ended, if this client can tell. */
  afterEnd(tx: Tx, callback: () => void): void;
  /** Opens a transaction for `outbox.transaction`. */
  begin(options: TransactionOptions): Promise<OpenTransaction<Tx>>;
  /**
   * Carries out statements that are all known in a transaction of their own, and `last` after them: everything in one
   * round trip if possible. `last` gets the marker that was set with BEGIN, `null` where nothing can end the transaction
   * before it. Throws unless the commit is certain. `afterCommitSql` is sent after the commit without waiting for its answer;
   * nobody waits for what comes of it.
   */
  run(
    statements: readonly Statement[],
    last: ((marker: string | null) => Statement) | undefined,
    options: TransactionOptions,
    afterCommitSql?: string,
  ): Promise<void>;
}

export interface TransactionOptions {
  /** Default: the database's own, usually read committed. */
  isolation?: 'read committed' | 'repeatable read' | 'serializable';
  /**
   * Send statements without waiting for the answer to the one before, which saves two round trips. Turn it off to use
   * pg-cursor or pg-query-stream inside the transaction. Default `true`.
   */
  pipeline?: boolean;
}

export interface OpenTransaction<Tx> {
  readonly tx: Tx;
  /** Set with BEGIN. A statement that carries it fails once the transaction has ended, also inside of another one. */
  readonly marker: string;
  /**
   * Sends `last` and then COMMIT, as one round trip if possible. Throws unless the commit is certain. `afterCommitSql` is sent after
   * it as in `run`.
   */
  commit(last?: Statement, afterCommitSql?: string): Promise<void>;
  rollback(): Promise<void>;
}
