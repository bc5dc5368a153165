import { randomUUID } from 'node:crypto';
import { codedDatabaseError } from '../database/database-error.ts';
import type { Executor } from '../database/executor.ts';
import type { InsertableEvent } from '../outbox/emitting/insert.ts';
import { markTransaction, transactionEnded, written } from '../outbox/emitting/insert.ts';
import type { CheckedEvents } from './check-events.ts';
import type { OutboxDatabase } from './outbox-database.ts';
import { isTaken, takeTurn } from './send-turns.ts';

/** How events are written in a transaction. */
interface Writing {
  /** In a transaction that is certainly open. */
  open(executor: Executor, events: readonly InsertableEvent[]): Promise<unknown>;
  /** In one that may have ended: see `insertIfOpen`. */
  uncertain(executor: Executor, events: readonly InsertableEvent[], known: string | null): Promise<string>;
}

/**
 * Writes events in the transaction that `tx` has open at the time of this call, and refuses a handle that is not an open
 * transaction.
 *
 * While a statement is in flight, most clients do not know whether the transaction is open: it may be COMMIT. And whatever is sent
 * later, after a check or another call, may find the connection in the transaction of another caller, which must neither get the
 * event nor fail. So the first statement is sent within this call, before anything that another caller may send: it writes the
 * events, or marks this transaction. Later statements write only in a transaction with that marker. A call that has waited already,
 * in an outbox.transaction(), passes the marker of that transaction: `tx` may be in another one by now.
 */
export async function sendInTransaction<Tx>(
  db: OutboxDatabase<Tx, unknown>,
  tx: Tx,
  checked: CheckedEvents,
  { open, uncertain }: Writing,
  ownMarker?: string,
): Promise<void> {
  try {
    // Nothing may be awaited before the first statement.
    const executor = db.inTransaction(tx);
    if (ownMarker !== undefined || checked instanceof Promise || isTaken(tx)) {
      const marking = Promise.resolve(ownMarker ?? markTransaction(executor, randomUUID()));
      const send = async (callBefore: (marker: string) => Promise<void>) => {
        const marker = await marking;
        await callBefore(marker);
        const events = await checked;
        requireWritten(await uncertain(db.inTransaction(tx), events, marker));
      };
      await takeTurn(tx, send, marking);
      return;
    }
    if (db.isOpen?.(tx)) {
      await open(executor, checked);
    } else {
      await takeTurn(tx, async () => {
        const state = await uncertain(executor, checked, null);
        if (state !== written) requireWritten(await uncertain(db.inTransaction(tx), checked, state));
      });
    }
  } catch (error) {
    throw codedDatabaseError(error);
  }
}

function requireWritten(state: string): void {
  if (state !== written) throw transactionEnded();
}
