import type { DeliveredEvent } from './delivered-event.ts';

const traceParentPattern = /^[\da-f]{2}-(?!0{32})[\da-f]{32}-[\da-f]{16}-[\da-f]{2}/;

/** The trace that the event was emitted in, by its `traceparent` header (W3C Trace Context); `undefined` without one. */
export function traceIdOf(event: DeliveredEvent): string | undefined {
  const { traceparent } = event.headers;
  // Events emitted by plain SQL may have headers that are not text.
  if (typeof traceparent !== 'string' || !traceParentPattern.test(traceparent)) return undefined;
  return traceparent.slice(3, 35);
}

/** Facts about an event as headers, so that consumers can filter, route and trace without reading the body. */
export function factHeaders(event: DeliveredEvent, traceId: string | undefined): Record<string, string> {
  const { type, id } = event.aggregate;
  const headers: Record<string, string> = {
    'event-id': event.id,
    'event-type': event.type,
    'schema-version': String(event.schemaVersion),
    'occurred-at': isoTime(event.occurredAtMs),
    'aggregate-type': type,
    'aggregate-id': id,
    'event-seq': event.seq,
  };
  const key = event.partitionKey;
  if (key !== null) headers['event-key'] = key;
  if (traceId !== undefined) headers['trace-id'] = traceId;
  return headers;
}

export function isoTime(ms: number): string {
  return new Date(ms).toISOString();
}
