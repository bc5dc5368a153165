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
  if (traceId !== undefined) headers['trace-id'] = traceId;
  return headers;
}

let lastMs = Number.NaN;
let lastText = '';
let lastSecond = Number.NaN;
let lastPrefix = '';
const textLength = '2026-01-31T12:00:00.000Z'.length;

/**
 * The ISO time, cached: events of one transaction have the same time, and those of a backlog mostly the same second.
 * Formatting it each time is a third of what the envelope costs.
 */
export function isoTime(ms: number): string {
  if (ms === lastMs) return lastText;
  const whole = Math.trunc(ms);
  const second = Math.floor(whole / 1_000);
  if (second !== lastSecond) {
    const text = new Date(ms).toISOString();
    // Years beyond 9999 are written with more digits.
    if (text.length !== textLength) return text;
    lastPrefix = text.slice(0, -4);
    lastSecond = second;
  }
  lastText = `${lastPrefix}${String(whole - second * 1_000).padStart(3, '0')}Z`;
  lastMs = ms;
  return lastText;
}
