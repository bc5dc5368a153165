import { randomUUID } from 'node:crypto';
import type { Executor } from '../database/executor.ts';
import { markTransaction } from '../outbox/emitting/insert.ts';
import { bufferOf } from './emit-buffer.ts';
import type { OutboxDatabase } from './outbox-database.ts';

/**
 * What the next statement must carry so that it cannot run outside of the open transaction `tx`, as far as it is known without
 * asking the server: `null` if the client is certain that the transaction is open, the marker that outbox.transaction() has set, or
 * `undefined`.
 */
export function knownMarker<Tx>(db: OutboxDatabase<Tx, unknown>, tx: Tx): null | string | undefined {
  return db.isOpen?.(tx) ? null : bufferOf(tx)?.marker;
}

/**
 * The same, with a marker of its own where none is known, which costs a round trip.
 *
 * Not async: after `null` the statement must be sent before anything else can run, such as a COMMIT of the caller.
 */
export function markerFor<Tx>(
  db: OutboxDatabase<Tx, unknown>,
  tx: Tx,
  executor: Executor,
): null | string | Promise<string> {
  const known = knownMarker(db, tx);
  return known === undefined ? markTransaction(executor, randomUUID()) : known;
}
