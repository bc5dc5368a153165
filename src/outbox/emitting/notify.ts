import { EventEmitter } from 'node:events';
import type { Executor } from '../../database/executor.ts';
import { doorbellChannel, quoteIdentifier } from '../../database/identifier.ts';

const notifySqlBySchema = new Map<string, string>();

/**
 * The statement that wakes every listening relay. It has no payload: NOTIFY fails with 8,000 bytes or more, and the relay
 * would not read it. NOTIFY instead of pg_notify(), which costs twice as much in this process and three times as much in the
 * server, next to the transactions it is sent for.
 */
export function notifySql(schema: string): string {
  let text = notifySqlBySchema.get(schema);
  if (text === undefined) {
    text = `notify ${quoteIdentifier(doorbellChannel(schema))}`;
    notifySqlBySchema.set(schema, text);
  }
  return text;
}

/** Wakes every listening relay. */
export async function notifyRelays(db: Executor, schema: string): Promise<void> {
  await db.query(notifySql(schema));
}

/** Sends a message to every listener. A relay sends itself one, to check that it still receives notifications. */
export async function notifyWith(db: Executor, schema: string, message: string): Promise<void> {
  await db.query('select pg_notify($1::text, $2::text)', [doorbellChannel(schema), message]);
}

const inProcess = new EventEmitter();
inProcess.setMaxListeners(0);

/**
 * Wakes the relays of this process, without the database. Databases may share a schema name: an extra wake-up is harmless.
 */
export function notifyInProcess(schema: string): void {
  inProcess.emit(schema);
}

/** Calls `wake` on every in-process notification, until the returned function is called. */
export function listenInProcess(schema: string, wake: () => void): () => void {
  inProcess.on(schema, wake);
  return () => inProcess.off(schema, wake);
}
