import type { Executor, Statement } from '../../database/executor.ts';
import { perSchema } from '../../database/identifier.ts';
import { PostcommitError } from '../../errors.ts';

/** An event ready for the log: validated, with its payload as JSON text. */
export interface InsertableEvent {
  id: string;
  aggregateType: string;
  aggregateId: string;
  type: string;
  schemaVersion: number;
  /** `undefined`: ordered by the aggregate. `''`: not ordered. */
  orderingKey: string | undefined;
  payloadJson: string;
  headers: Record<string, string>;
  availableAt: Date | undefined;
  delayMs: number | undefined;
  attemptsMax: number | undefined;
  /** `undefined`: the default queue. */
  queue: string | undefined;
}

// The caller's transaction has the caller's search_path, so functions are qualified with their schema. All parameters are
// text, because every driver and ORM passes text unchanged. The procedure declares text, so the statement needs no casts:
// twelve cost 15 us. PostgreSQL treats an untyped parameter as text, so no overload fits better.
const insertOneSql = perSchema((s) => `call ${s}.emit_one($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13)`);
// FROM, because emit() returns void, which Prisma cannot read.
const insertSql = perSchema((s) => `select from ${s}.emit($1::text::jsonb, $2::text::boolean, $3::text)`);

const insertOneIfWritingSql = perSchema(
  (s) => `call ${s}.emit_one_if_writing($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, null::pg_catalog.text)`,
);
// See emit_one_if_writing.sql for why a transaction id is proof. The filter is evaluated once, before the function is called.
const insertIfWritingSql = perSchema(
  (s) =>
    `select 'yes' as written from ${s}.emit($1::text::jsonb, $2::text::boolean) where pg_catalog.pg_current_xact_id_if_assigned() is not null`,
);

const insertFlushSql = perSchema(
  (s) => `select pg_catalog.set_config('postcommit.flushes', pg_catalog.concat(
                   pg_catalog.current_setting('postcommit.flushes', true), $1::text, ','), true)
            from ${s}.emit($2::text::jsonb, $3::text::boolean, $4::text)`,
);

const insertOnceSql = perSchema(
  (s) =>
    `select pg_catalog.array_to_string(${s}.emit_once($1::text::jsonb, $2::text::boolean, $3::text), ',') as written`,
);

/** jsonb can store three times this (256 MiB). In characters, because counting bytes would mean encoding twice. */
const insertCharactersMax = 80_000_000;

/**
 * Builds the statement that appends events to the log and the queue, whatever their number. All client-side checks fail here.
 * With `serialise`, writers of the same key wait for each other until they commit, so that seq follows commit order. With a
 * marker, the statement fails unless the transaction still has that marker.
 */
export function insertStatement(
  schema: string,
  events: readonly InsertableEvent[],
  serialise: boolean,
): (marker: string | null) => Statement {
  refuseTooLarge(events);
  const single = onlyOne(events);
  const [text, values, queue] =
    single !== undefined
      ? [insertOneSql(schema), toTexts(single), [single.queue ?? null]]
      : [insertSql(schema), [eventsJson(events)], []];
  return (marker) => ({ text, values: [...values, String(serialise), marker, ...queue] });
}

/**
 * Appends events if the session is in a transaction that has written something before: then it is certainly not a transaction
 * of this statement alone. Returns whether it did. Otherwise nothing is written, and the transaction has not failed.
 */
export async function insertIfWriting(
  db: Executor,
  schema: string,
  events: readonly InsertableEvent[],
  serialise: boolean,
): Promise<boolean> {
  refuseTooLarge(events);
  const single = onlyOne(events);
  if (single === undefined) {
    const { rows } = await db.query(insertIfWritingSql(schema), [eventsJson(events), String(serialise)]);
    return rows.length > 0;
  }
  const values = [...toTexts(single), String(serialise), single.queue ?? null];
  const { rows } = await db.query(insertOneIfWritingSql(schema), values);
  const written = (rows[0] as { written?: string | null } | undefined)?.written;
  // Written a second time, the event would fail with a duplicate id.
  if (written === undefined) throw new PostcommitError('POSTCOMMIT_E_BAD_ADAPTER', 'It drops the rows of a CALL.');
  return written === 'yes';
}

/**
 * Appends the events whose ids are not in the log, and returns their ids. With a marker, it fails unless the transaction
 * still has that marker.
 */
export async function insertOnce(
  db: Executor,
  schema: string,
  events: readonly InsertableEvent[],
  { serialise, marker }: { serialise: boolean; marker: string | null },
): Promise<Set<string>> {
  refuseTooLarge(events);
  const { rows } = await db.query(insertOnceSql(schema), [eventsJson(events), String(serialise), marker]);
  const { written } = rows[0] as { written: string };
  return new Set(written === '' ? [] : written.split(','));
}

/**
 * Appends events that outbox.transaction() had buffered, and records the number of the flush in a setting of the transaction.
 * A rollback to a savepoint undoes both. Fails unless the transaction still has the marker.
 */
export async function insertFlush(
  db: Executor,
  schema: string,
  events: readonly InsertableEvent[],
  { serialise, marker, flush }: { serialise: boolean; marker: string; flush: number },
): Promise<void> {
  refuseTooLarge(events);
  await db.query(insertFlushSql(schema), [String(flush), eventsJson(events), String(serialise), marker]);
}

/** Reads the numbers of the flushes that the transaction contains. Throws unless it still has the marker. */
export async function recordedFlushes(db: Executor, marker: string): Promise<Set<number>> {
  const { rows } = await db.query(
    `select pg_catalog.current_setting('postcommit.mark', true) as marker,
            pg_catalog.current_setting('postcommit.flushes', true) as flushes`,
  );
  const row = rows[0] as { marker: string | null; flushes: string | null };
  if (row.marker !== marker) {
    throw new PostcommitError('POSTCOMMIT_E_NOT_A_TRANSACTION', 'The transaction to emit in has already ended.');
  }
  return new Set((row.flushes ?? '').split(',').filter(Boolean).map(Number));
}

function refuseTooLarge(events: readonly InsertableEvent[]): void {
  const characters = events.reduce((sum, event) => sum + event.payloadJson.length, 0);
  if (characters > insertCharactersMax) {
    throw new PostcommitError(
      'POSTCOMMIT_E_PAYLOAD_TOO_LARGE',
      `The payloads of one call have ${characters} characters together, the limit is ${insertCharactersMax}: emit them in several calls.`,
    );
  }
}

/**
 * Marks the open transaction, unless it has a marker, and returns the marker. Outside of a transaction the marker does not
 * outlive the statement. A marker is never replaced: another statement may depend on it.
 */
export async function markTransaction(db: Executor, marker: string): Promise<string> {
  const { rows } = await db.query(
    `select pg_catalog.set_config('postcommit.mark',
              coalesce(nullif(pg_catalog.current_setting('postcommit.mark', true), ''), $1::text), true) as marker`,
    [marker],
  );
  return (rows[0] as { marker: string }).marker;
}

/**
 * Marks a transaction; sent together with BEGIN, without a round trip of its own. SET, because a SELECT would take the
 * snapshot of a repeatable read transaction. SET takes no parameters.
 */
export function setMarkerSql(marker: string): string {
  if (!/^[0-9a-f-]+$/.test(marker)) throw new TypeError('A marker is hexadecimal.');
  return `set local postcommit.mark = '${marker}'`;
}

/**
 * Returns the event if emit_one can write it. That has no parameters for rarely used fields, because each parameter costs every
 * event a microsecond.
 */
function onlyOne(events: readonly InsertableEvent[]): InsertableEvent | undefined {
  return events.length === 1 && events[0]?.attemptsMax === undefined ? events[0] : undefined;
}

/** The parameters of emit_one. */
function toTexts(event: InsertableEvent): (string | null)[] {
  return [
    event.id,
    event.aggregateType,
    event.aggregateId,
    event.type,
    String(event.schemaVersion),
    event.orderingKey ?? null,
    event.payloadJson,
    JSON.stringify(event.headers),
    event.availableAt?.toISOString() ?? null,
    event.delayMs === undefined ? null : String(event.delayMs),
  ];
}

/** Events as emit() and emit_once() take them. */
export function eventsJson(events: readonly InsertableEvent[]): string {
  return `[${events.map(toJson).join(',')}]`;
}

function toJson(event: InsertableEvent): string {
  const rest = JSON.stringify({
    id: event.id,
    aggregate_type: event.aggregateType,
    aggregate_id: event.aggregateId,
    event_type: event.type,
    schema_version: event.schemaVersion,
    ordering_key: event.orderingKey,
    headers: event.headers,
    available_at: event.availableAt?.toISOString(),
    delay_ms: event.delayMs,
    attempts_max: event.attemptsMax,
    queue: event.queue,
  });
  // The payload became JSON text when it was validated; parsing it again to nest it would double the work.
  return `${rest.slice(0, -1)},"payload":${event.payloadJson}}`;
}
