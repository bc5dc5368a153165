import { randomUUID } from 'node:crypto';
import type { Executor, Statement } from '../../database/executor.ts';
import { perSchema } from '../../database/identifier.ts';
import { requireRows, singleColumn } from '../../database/single-column.ts';
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

const insertOneIfOpenSql = perSchema(
  (s) => `call ${s}.emit_one_if_open($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14)`,
);
// All parameters of emit() are given: another function of that name with fewer ones would make the call ambiguous.
// See emit_one_if_open.sql for why a transaction id is proof. Each filter is evaluated once, before the function is called.
const insertIfWritingSql = perSchema(
  (s) =>
    `select 'written' as state from ${s}.emit($1::text::jsonb, $2::text::boolean, null::text)
      where pg_catalog.pg_current_xact_id_if_assigned() is not null
     union all
     select pg_catalog.set_config('postcommit.mark',
              coalesce(nullif(pg_catalog.current_setting('postcommit.mark', true), ''), $3::text), true)
      where pg_catalog.pg_current_xact_id_if_assigned() is null`,
);
const isMarked = (parameter: string) =>
  `pg_catalog.current_setting('postcommit.mark', true) operator(pg_catalog.=) ${parameter}::text`;
const insertIfMarkedSql = perSchema(
  (s) =>
    `select 'written' as state from ${s}.emit($1::text::jsonb, $2::text::boolean, $3::text) where ${isMarked('$3')}`,
);

const insertFlushSql = perSchema(
  (s) => `select pg_catalog.set_config('postcommit.flushes', pg_catalog.concat(
                   pg_catalog.current_setting('postcommit.flushes', true), $1::text, ','), true)
            from ${s}.emit($2::text::jsonb, $3::text::boolean, $4::text)
           where ${isMarked('$4')}`,
);

const emitOnce = (s: string) =>
  `select pg_catalog.array_to_string(${s}.emit_once($1::text::jsonb, $2::text::boolean), ',') as written`;
const insertOnceSql = perSchema(emitOnce);
const insertOnceIfMarkedSql = perSchema((s) => `${emitOnce(s)} where ${isMarked('$3')}`);

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

/** What `insertIfOpen` did. Anything else is the marker of the transaction, for a second call. */
export const written = 'written';
export const ended = 'ended';

/**
 * Appends events if the transaction is certainly open, which its client is not sure of. Returns `written`, or the marker that the
 * transaction has got: then nothing was written, because the transaction has written nothing before, and the same call with
 * that marker as `known` writes the events or returns `ended`.
 *
 * Never fails because the transaction has ended: the connection may be in a transaction of another caller by the second call.
 */
export async function insertIfOpen(
  db: Executor,
  schema: string,
  events: readonly InsertableEvent[],
  { serialise, known }: { serialise: boolean; known: string | null },
): Promise<string> {
  refuseTooLarge(events);
  const single = onlyOne(events);
  const marker = randomUUID();
  if (single !== undefined) {
    const values = [...toTexts(single), String(serialise), single.queue ?? null, known, marker];
    const { rows } = await db.query(insertOneIfOpenSql(schema), values);
    // Written a second time, the event would fail with a duplicate id. So an adapter that drops the rows of a CALL is refused.
    return requireState(requireRows(rows));
  }
  const sql = known === null ? insertIfWritingSql(schema) : insertIfMarkedSql(schema);
  const { rows } = await db.query(sql, [eventsJson(events), String(serialise), known ?? marker]);
  return requireRows(rows).length === 0 ? ended : requireState(rows);
}

/**
 * Appends the events whose ids are not in the log, and returns their ids. With a marker, it returns `undefined` and writes nothing
 * unless the transaction still has that marker.
 */
export async function insertOnce(
  db: Executor,
  schema: string,
  events: readonly InsertableEvent[],
  { serialise, marker }: { serialise: boolean; marker: string | null },
): Promise<Set<string> | undefined> {
  refuseTooLarge(events);
  const values = [eventsJson(events), String(serialise)];
  const { rows } =
    marker === null
      ? await db.query(insertOnceSql(schema), values)
      : await db.query(insertOnceIfMarkedSql(schema), [...values, marker]);
  if (marker !== null && requireRows(rows).length === 0) return undefined;
  const written = singleColumn(requireRows(rows)[0], 'written');
  return new Set(written?.split(',').filter(Boolean));
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
  const values = [String(flush), eventsJson(events), String(serialise), marker];
  const { rows } = await db.query(insertFlushSql(schema), values);
  if (requireRows(rows).length === 0) throw transactionEnded();
}

/** Reads the numbers of the flushes that the transaction contains. Throws unless it still has the marker. */
export async function recordedFlushes(db: Executor, marker: string): Promise<Set<number>> {
  const { rows } = await db.query(
    `select pg_catalog.concat(pg_catalog.current_setting('postcommit.mark', true), ' ',
                              pg_catalog.current_setting('postcommit.flushes', true)) as recorded`,
  );
  const [recordedMarker, flushes] = (singleColumn(requireRows(rows)[0], 'recorded') ?? '').split(' ');
  if (recordedMarker !== marker) {
    throw transactionEnded();
  }
  return new Set((flushes ?? '').split(',').filter(Boolean).map(Number));
}

function requireState(rows: readonly object[]): string {
  const state = singleColumn(rows[0], 'state');
  if (state === null)
    throw new PostcommitError('POSTCOMMIT_E_BAD_ADAPTER', 'It returns NULL for the result of an emit.');
  return state;
}

export function transactionEnded(): PostcommitError {
  return new PostcommitError('POSTCOMMIT_E_NOT_A_TRANSACTION', 'The transaction to emit in has already ended.');
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
  return singleColumn(requireRows(rows)[0], 'marker') as string;
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
