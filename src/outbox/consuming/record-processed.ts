import type { Executor } from '../../database/executor.ts';
import { perSchema, quoteIdentifier, quoteLiteral } from '../../database/identifier.ts';

const recordProcessedSql = perSchema(
  (s) => `select ${s}.record_processed($1::text, $2::text, $3::text)::text as recorded`,
);

// Types are qualified: the caller's search_path must not decide what they are. Cast by way of text, because some clients declare
// every string as text. 70 us faster than the function, whose plan is kept, but which PL/pgSQL prepares again in each transaction.
const recordInOpenSql = perSchema(
  (s) => `${insertSql(s, 'values ($1, $2::pg_catalog.text::pg_catalog.uuid)')} returning 'true' as recorded`,
);

const insertSql = (s: string, source: string): string =>
  `insert into ${s}.processed_events (consumer_name, event_id) ${source} on conflict do nothing`;

/** An event and the consumer that processes it. */
export interface ProcessedEvent {
  consumer: string;
  eventId: string;
}

/** Whether the event was recorded, and whether the client says how many rows a statement has inserted, as pg does. */
export interface Recorded {
  isNew: boolean;
  countsRows: boolean;
}

/**
 * Records in the open transaction that the consumer processes the event. Waits for another open transaction that has recorded
 * the same. If the event was recorded before, nothing is written. With a marker, it fails unless the transaction still has that
 * marker.
 *
 * In a REPEATABLE READ or SERIALIZABLE transaction it fails with 40001 if another transaction has recorded the event since the
 * snapshot was taken.
 */
export async function recordProcessed(
  db: Executor,
  schema: string,
  { consumer, eventId }: ProcessedEvent,
  marker: string | null,
): Promise<Recorded> {
  const result =
    marker === null
      ? await db.query(recordInOpenSql(schema), [consumer, eventId])
      : await db.query(recordProcessedSql(schema), [consumer, eventId, marker]);
  const isNew = (result.rows[0] as { recorded: string } | undefined)?.recorded === 'true';
  return { isNew, countsRows: typeof rowCountOf(result) === 'number' };
}

/**
 * The same for a client that counts rows, in 75 us less: a statement without parameters is one message of the simple protocol, and
 * PostgreSQL makes no plan to keep for it. Returns `undefined` if the client has not counted after all; the event may have been
 * recorded then.
 */
export async function recordCounted(
  db: Executor,
  schema: string,
  event: ProcessedEvent,
  marker: string | null,
): Promise<boolean | undefined> {
  const text = marker === null ? recordFirstSql(schema, event) : recordIfMarkedSql(schema, event, marker);
  const inserted = rowCountOf(await db.query(text));
  // Without a row it is a duplicate, or the transaction has ended: the function tells them apart.
  if (inserted === 0 && marker !== null) return (await recordProcessed(db, schema, event, marker)).isNew;
  return inserted === undefined ? undefined : inserted === 1;
}

/**
 * The statement without parameters, for a transaction that is certainly open, or as its first statement. Inserts one row, or none for
 * a duplicate.
 */
export function recordFirstSql(schema: string, { consumer, eventId }: ProcessedEvent): string {
  return insertSql(quoteIdentifier(schema), `values (${quoteLiteral(consumer)}, ${quoteLiteral(eventId)})`);
}

/** The same for a transaction that has this marker: inserts nothing in any other, and outside of one. */
function recordIfMarkedSql(schema: string, { consumer, eventId }: ProcessedEvent, marker: string): string {
  const mark = `pg_catalog.current_setting('postcommit.mark', true) operator(pg_catalog.=) ${quoteLiteral(marker)}`;
  const source = `select ${quoteLiteral(consumer)}, ${quoteLiteral(eventId)}::pg_catalog.uuid where ${mark}`;
  return insertSql(quoteIdentifier(schema), source);
}

function rowCountOf(result: object): number | undefined {
  const { rowCount } = result as { rowCount?: unknown };
  return typeof rowCount === 'number' ? rowCount : undefined;
}

/** Fails, so that PostgreSQL refuses to commit the open transaction. A rollback to an earlier savepoint makes it usable again. */
export const failTransactionSql = `do $postcommit$ begin
  raise exception 'the work for an event failed, so the transaction with its inbox record must not commit';
end $postcommit$`;
