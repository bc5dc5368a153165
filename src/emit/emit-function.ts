import type { OutboxEvent } from './event.ts';

/**
 * Emits one event, or several, and returns the id or the ids. The events are written in the order of the calls: with COMMIT,
 * or with the next `outbox.emit(tx, ...)` of the transaction if that comes first.
 *
 * So events of SQL that the work runs itself (`select postcommit.emit(...)`, a plain INSERT, a trigger that emits) come before
 * an event that was passed to `emit` earlier and is not written yet. Where that order matters, use `outbox.emit(tx, ...)`,
 * which writes immediately.
 *
 * The events exist exactly when the transaction commits: a rollback to a savepoint does not remove them, even if they were
 * written after the savepoint. They are then written again, in order, with the next `outbox.emit(tx, ...)` or with COMMIT. To
 * find out, the transaction asks the server, with one round trip, before each further `outbox.emit(tx, ...)` and before COMMIT,
 * once an `outbox.emit(tx, ...)` has written events of `emit`. For an event that a rollback to a savepoint should remove, use
 * `outbox.emit(tx, ...)`.
 */
export interface Emit<Event extends OutboxEvent = OutboxEvent> {
  (events: readonly Event[]): Promise<string[]>;
  (event: Event): Promise<string>;
}

/** The result of `emitOnce` for one event. */
export interface EmittedOnce {
  id: string;
  /** `false`: the log already has an event with this id, and nothing was changed. */
  written: boolean;
}
