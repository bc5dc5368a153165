import type { Executor } from '../database/executor.ts';

/**
 * How the outbox talks to one kind of database client. One small file per client implements it (`fromPg`, …).
 * `Tx` is what that client's users call a transaction.
 */
export interface OutboxDatabase<Tx> {
  /** The statement runner of an open transaction. Refuses any other handle with POSTCOMMIT_E_NOT_A_TRANSACTION. */
  inTransaction(tx: Tx): Promise<Executor>;
  /** For statements of the outbox's own, outside of the caller's transactions. */
  readonly side: Executor;
  /** Calls back some time after the transaction has ended, if this client can tell. */
  afterEnd(tx: Tx, callback: () => void): void;
  /** Opens a transaction for `outbox.transaction`. */
  begin(options: TransactionOptions): Promise<OpenTransaction<Tx>>;
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
  readonly executor: Executor;
  /** Runs `last`, then commits, as one round trip if possible. Throws unless the commit is certain. */
  commit(last?: () => Promise<unknown>): Promise<void>;
  rollback(): Promise<void>;
}
