import { codedDatabaseError } from '../database/database-error.ts';
import type { Executor } from '../database/executor.ts';
import { PostcommitError } from '../errors.ts';
import { transactionEnded, written } from '../outbox/emitting/insert.ts';
import type { OutboxDatabase } from './outbox-database.ts';
import { isTaken, takeTurn, waitForTurn } from './send-turns.ts';
import { knownMarker } from './transaction-marker.ts';

/** How something is written in a transaction. */
interface Writing {
  /** In a transaction that is certainly open. */
  open(executor: Executor): Promise<unknown>;
  /** In one that may have ended: see `insertIfOpen`. */
  uncertain(executor: Executor, known: string | null): Promise<string>;
}

/**
 * Writes in `tx`, and refuses a handle that is not an open transaction.
 *
 * While a statement is in flight, most clients do not know whether the transaction is open: it may be COMMIT. Then the first
 * statement is sent at once, so it comes before anything that another caller may send on this connection. What is written after
 * its answer is written only in the transaction that it has marked: by then a pool may have given the connection to another
 * caller, whose transaction must neither get the event nor fail.
 */
export async function sendInTransaction<Tx>(
  db: OutboxDatabase<Tx, unknown>,
  tx: Tx,
  { open, uncertain }: Writing,
): Promise<void> {
  try {
    if (isTaken(tx)) throwIfEnded(await waitForTurn(tx));
    const executor = db.inTransaction(tx);
    // Nothing may come between this and the statement.
    const marker = knownMarker(db, tx);
    if (marker === null) {
      await open(executor);
    } else if (marker !== undefined) {
      requireWritten(await uncertain(executor, marker));
    } else {
      await takeTurn(tx, async () => {
        const state = await uncertain(executor, null);
        if (state !== written) requireWritten(await uncertain(db.inTransaction(tx), state));
      });
    }
  } catch (error) {
    throw codedDatabaseError(error);
  }
}

function requireWritten(state: string): void {
  if (state !== written) throw transactionEnded();
}

/** The call before found that the transaction has ended. By now the handle may be in another one. */
function throwIfEnded(failure: unknown): void {
  if (failure instanceof PostcommitError && failure.code === 'POSTCOMMIT_E_NOT_A_TRANSACTION') throw failure;
}
