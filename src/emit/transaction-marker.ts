import { randomUUID } from 'node:crypto';
import type { Executor } from '../database/executor.ts';
import { markTransaction } from '../outbox/emitting/insert.ts';
import { bufferOf } from './emit-buffer.ts';
import type { OutboxDatabase } from './outbox-database.ts';

/**
 * What the next statement must carry so that it cannot run outside of the open transaction `tx`: `null` if the client is certain
 * that the transaction is open, the marker that outbox.transaction() has set, or a new one, which costs a round trip.
 *
 * Not async: after `null` the statement must be sent before anything else can run, such as a COMMIT of the caller.
 */
export function markerFor<Tx>(
  db: OutboxDatabase<Tx, unknown>,
  tx: Tx,
  executor: Executor,
): null | string | Promise<string> {
  if (db.isOpen?.(tx)) return null;
  return bufferOf(tx)?.marker ?? markTransaction(executor, randomUUID());
}
