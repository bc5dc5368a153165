import { EventEmitter } from 'node:events';
import type { Executor } from '../../database/executor.ts';
import { doorbellChannel, quoteIdentifier } from '../../database/identifier.ts';

const notifySql = new Map<string, string>();

/**
 * The statement that wakes every listening relay. Without a payload: one of 8,000 bytes would fail, and the relay would not
 * read it. NOTIFY, because pg_notify costs twice as much here and three times as much in the server, beside the
 * transactions it is for.
 */
export function ringSql(schema: string): string {
  let text = notifySql.get(schema);
  if (text === undefined) {
    text = `notify ${quoteIdentifier(doorbellChannel(schema))}`;
    notifySql.set(schema, text);
  }
  return text;
}

/** Wakes every listening relay. */
export async function ring(db: Executor, schema: string): Promise<void> {
  await db.query(ringSql(schema));
}

/** Sends a message to whoever listens, for a relay to see that it still hears. */
export async function ringWith(db: Executor, schema: string, message: string): Promise<void> {
  await db.query('select pg_notify($1::text, $2::text)', [doorbellChannel(schema), message]);
}

const inProcess = new EventEmitter();
inProcess.setMaxListeners(0);

/** Wakes the relays of this process, without the database. Two databases may share a name: a needless wake is harmless. */
export function ringInProcess(schema: string): void {
  inProcess.emit(schema);
}

/** Calls `wake` on every in-process ring; answers how to stop that. */
export function hearInProcess(schema: string, wake: () => void): () => void {
  inProcess.on(schema, wake);
  return () => inProcess.off(schema, wake);
}
