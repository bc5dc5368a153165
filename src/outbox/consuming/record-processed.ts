import type { Executor } from '../../database/executor.ts';
import { perSchema } from '../../database/identifier.ts';
import { PostcommitError } from '../../errors.ts';

const recordProcessedSql = perSchema(
  (s) => `
insert into ${s}.processed_events (consumer_name, event_id) values ($1::text, $2::text::uuid)
on conflict do nothing returning 'yes'::text as recorded`,
);

// Where it is uncertain that the transaction is open. The marker is returned rather than compared a second time, because some
// clients bind each parameter once.
const recordMarkedSql = perSchema(
  (s) => `
with recorded as (
  insert into ${s}.processed_events (consumer_name, event_id)
  select $1::text, $2::text::uuid where pg_catalog.current_setting('postcommit.mark', true) = $3::text
  on conflict do nothing returning 1
)
select (select 'yes'::text from recorded) as recorded, pg_catalog.current_setting('postcommit.mark', true) as marker`,
);

/** An event and the consumer that processes it. */
export interface ProcessedEvent {
  consumer: string;
  eventId: string;
}

/**
 * Records in the open transaction that the consumer processes the event. Waits for another open transaction that has recorded
 * the same. Returns false if the event was recorded before; nothing was written then. With a marker, it fails unless the
 * transaction still has that marker.
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
  if (marker === null) {
    const { rows } = await db.query(recordProcessedSql(schema), [consumer, eventId]);
    return rows.length > 0;
  }
  const { rows } = await db.query(recordMarkedSql(schema), [consumer, eventId, marker]);
  const row = rows[0] as { recorded: string | null; marker: string | null };
  if (row.marker !== marker) {
    throw new PostcommitError('POSTCOMMIT_E_NOT_A_TRANSACTION', 'The transaction to record in has already ended.');
  }
  return row.recorded !== null;
}

/** Fails, so that PostgreSQL refuses to commit the open transaction. A rollback to an earlier savepoint makes it usable again. */
export const failTransactionSql = `do $postcommit$ begin
  raise exception 'the work for an event failed, so the transaction with its inbox record must not commit';
end $postcommit$`;
