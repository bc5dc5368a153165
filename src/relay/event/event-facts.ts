import type { ClaimedRow } from '../../outbox/delivering/claim.ts';

/** The event that a lifecycle event is about. */
export interface EventFacts {
  readonly eventId: string;
  readonly eventType: string;
  readonly aggregateType: string;
  readonly aggregateId: string;
  readonly seq: string;
  /** The queue that it was claimed from. */
  readonly queue: string;
  /** 1 for the first try. */
  readonly attempt: number;
}

export function factsOf(row: ClaimedRow): EventFacts {
  return {
    eventId: row.id,
    eventType: row.type,
    aggregateType: row.aggregateType,
    aggregateId: row.aggregateId,
    seq: row.seq,
    queue: row.queue,
    attempt: row.attempts + 1,
  };
}

/** The names that every log line about an event carries. */
export function logFields({ eventId, eventType, aggregateType, aggregateId, ...rest }: EventFacts): object {
  return {
    event_id: eventId,
    event_type: eventType,
    aggregate_type: aggregateType,
    aggregate_id: aggregateId,
    ...rest,
  };
}
