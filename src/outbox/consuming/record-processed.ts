import type { Executor } from '../../database/executor.ts';
import { perSchema, quoteIdentifier, quoteLiteral } from '../../database/identifier.ts';
import { requireRows, singleColumn } from '../../database/single-column.ts';
import { PostcommitError } from '../../errors.ts';

const recordProcessedSql = perSchema(
  (s) => `select ${s}.record_processed($1::text, $2::text, $3::text)::text as recorded`,
);

// Always one row: if a duplicate had none, a client that loses rows would skip new events as duplicates. Types are qualified: the
// caller's search_path must not decide what they are. Cast by way of text, because some clients declare every string as text.
const recordInOpenSql = perSchema(
  (s) => `
with recorded as (${insertSql(s, 'values ($1, $2::pg_catalog.text::pg_catalog.uuid)')} returning 1)
select exists (select from recorded)::pg_catalog.text as recorded`,
);

const insertSql = (s: string, source: string): string =>
  `insert into ${s}.processed_events (consumer_name, event_id) ${source} on conflict do nothing`;

/** An event and the consumer that processes it. */
export interface ProcessedEvent {
  consumer: string;
  eventId: string;
}

/**
 * Records in the open transaction that the consumer processes the event. Waits for another open transaction that has recorded
 * the same. Returns false if the event was recorded before; nothing was written then. With a marker, nothing is
 * recorded and it throws unless the transaction still has that marker.
 *
 * In a REPEATABLE READ or SERIALIZABLE transaction it fails with 40001 if another transaction has recorded the event since the
 * snapshot was taken.
 */
export async function recordProcessed(
  db: Executor,
  schema: string,
  { consumer, eventId }: ProcessedEvent,
  marker: string | null,
): Promise<boolean> {
  const { rows } =
    marker === null
      ? await db.query(recordInOpenSql(schema), [consumer, eventId])
      : await db.query(recordProcessedSql(schema), [consumer, eventId, marker]);
  const recorded = singleColumn(requireRows(rows)[0], 'recorded');
  if (recorded !== null) return recorded === 'true';
  throw new PostcommitError('POSTCOMMIT_E_NOT_A_TRANSACTION', 'The transaction to record in has already ended.');
}

/**
 * The same as a statement without parameters, 75 us faster: one message of the simple protocol, for which PostgreSQL makes no plan to
 * keep. It inserts one row, or none for a duplicate, and none without the marker.
 */
export function recordLiteralSql(schema: string, event: ProcessedEvent, marker: string | null): string {
  const [consumer, eventId] = [quoteLiteral(event.consumer), quoteLiteral(event.eventId)];
  if (marker === null) return insertSql(quoteIdentifier(schema), `values (${consumer}, ${eventId})`);
  const source = `select ${consumer}, ${eventId}::pg_catalog.uuid where ${isMarked(marker)}`;
  return insertSql(quoteIdentifier(schema), source);
}

const isMarked = (marker: string): string =>
  `pg_catalog.current_setting('postcommit.mark', true) operator(pg_catalog.=) ${quoteLiteral(marker)}`;

/**
 * Fails, so that PostgreSQL refuses to commit the open transaction. A rollback to an earlier savepoint makes it usable again. With a
 * marker, it does nothing unless the transaction has that marker.
 */
export function failTransactionSql(marker: string | null): string {
  return `do $postcommit$ begin
  if ${marker === null ? 'true' : isMarked(marker)} then
    raise exception 'the work for an event failed, so the transaction with its inbox record must not commit';
  end if;
end $postcommit$`;
}
