import { EventEmitter } from 'node:events';
import type { Executor } from '../database/executor.ts';
import { doorbellChannel } from '../database/identifier.ts';

/** Wakes every listening relay. Without a payload: one of 8,000 bytes would fail, and the relay would not read it. */
export async function ring(db: Executor, schema: string, message = ''): Promise<void> {
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
