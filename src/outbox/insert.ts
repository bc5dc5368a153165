import type { Executor } from '../database/executor.ts';
import { perSchema } from '../database/identifier.ts';

/** An event as the log takes it: checked, with its payload already JSON text. */
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
}

// One text parameter, because that is what every driver and ORM passes on unchanged.
const insertSql = perSchema((s) => `select ${s}.emit($1::text::jsonb, $2::text::boolean)`);

/**
 * Appends events to the log and the queue, in the caller's transaction: one statement whatever their number.
 * With `serialise`, writers of the same key wait for each other until they commit, so that seq is commit order.
 */
export async function insert(
  db: Executor,
  schema: string,
  events: readonly InsertableEvent[],
  serialise: boolean,
): Promise<void> {
  await db.query(insertSql(schema), [`[${events.map(toJson).join(',')}]`, String(serialise)]);
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
  });
  // The payload was made JSON when it was checked; parsing it again to nest it would double the work.
  return `${rest.slice(0, -1)},"payload":${event.payloadJson}}`;
}
