import { EventEmitter } from 'node:events';
import type { Executor } from '../../database/executor.ts';
import { doorbellChannel, quoteIdentifier } from '../../database/identifier.ts';
import { defaultQueue, isQueueName } from '../../queue-name.ts';

/**
 * What a notification says: nothing for the queue `default`, the name of another queue, `*` for all, `cancelled:` for a relay that has
 * a cancelled event (cancel_events.sql), and `probe:` for the relay that sent it (relay/wake/doorbell.ts).
 */

/** Stands for all queues in a notification; it is not the name of a queue. */
export const allQueues = '*';

const notifySqlBySchema = new Map<string, string>();

/**
 * The statement that wakes every listening relay that works a queue. Its payload is the queue, or none for the default one.
 * NOTIFY instead of pg_notify(), which costs twice as much in this process and three times as much in the server, next to the
 * transactions it is sent for.
 */
export function notifySql(schema: string, queue: string): string {
  let text = notifySqlBySchema.get(schema);
  if (text === undefined) {
    text = `notify ${quoteIdentifier(doorbellChannel(schema))}`;
    notifySqlBySchema.set(schema, text);
  }
  if (queue === defaultQueue) return text;
  // NOTIFY takes no parameters.
  if (queue !== allQueues && !isQueueName(queue)) throw new TypeError('This is not the name of a queue.');
  return `${text}, '${queue}'`;
}

/** Wakes every listening relay that works a queue, or every one. */
export async function notifyRelays(db: Executor, schema: string, queue = allQueues): Promise<void> {
  await db.query(notifySql(schema, queue));
}

/** The queues that a notification is for; `undefined` for all. */
export function queuesNotified(payload: string): string[] | undefined {
  if (payload === allQueues) return undefined;
  return [payload === '' ? defaultQueue : payload];
}

/** Sends a message to every listener. A relay sends itself one, to check that it still receives notifications. */
export async function notifyWith(db: Executor, schema: string, message: string): Promise<void> {
  await db.query('select pg_notify($1::text, $2::text)', [doorbellChannel(schema), message]);
}

const inProcess = new EventEmitter();
inProcess.setMaxListeners(0);

/** A schema may be named `error` or `newListener`, which are events of EventEmitter itself: `error` without a listener throws. */
function eventOf(schema: string): string {
  return `schema:${schema}`;
}

/**
 * Wakes the relays of this process, without the database: those that work these queues, or all. Databases may share a schema
 * name: an extra wake-up is harmless.
 */
export function notifyInProcess(schema: string, queues?: readonly string[]): void {
  inProcess.emit(eventOf(schema), queues);
}

/** Calls `wake` on every in-process notification, until the returned function is called. */
export function listenInProcess(schema: string, wake: (queues: readonly string[] | undefined) => void): () => void {
  const event = eventOf(schema);
  inProcess.on(event, wake);
  return () => inProcess.off(event, wake);
}
