import type { Executor } from '../../database/executor.ts';
import { perSchema } from '../../database/identifier.ts';

const recordProcessedSql = perSchema(
  (s) => `select ${s}.record_processed($1::text, $2::text, $3::text)::text as recorded`,
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
  const { rows } = await db.query(recordProcessedSql(schema), [consumer, eventId, marker]);
  return (rows[0] as { recorded: string }).recorded === 'true';
}

/** Fails, so that PostgreSQL refuses to commit the open transaction. A rollback to an earlier savepoint makes it usable again. */
export const failTransactionSql = `do $postcommit$ begin
  raise exception 'the work for an event failed, so the transaction with its inbox record must not commit';
end $postcommit$`;
