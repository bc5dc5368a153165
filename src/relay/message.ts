import type { Message } from '../publishers/publisher.ts';
import type { Serialized } from '../wire/serializer.ts';
import { deduplicationId } from './deduplication-id.ts';
import type { DeliveredEvent } from './delivered-event.ts';
import type { Leg } from './route.ts';

/** Puts together what goes to the publisher: what the serializer wrote, the event's own headers, and the route's. */
export function toMessage(event: DeliveredEvent, leg: Leg, serialized: Serialized): Message {
  const { body, contentType } = serialized;
  if (typeof body !== 'string' && !(body instanceof Uint8Array))
    throw new Error('it answered no body of text or bytes');
  if (typeof contentType !== 'string') throw new Error('it answered no contentType');
  const headers = allHeaders(event.headers, leg.headers, serialized.headers);
  return {
    eventId: event.id,
    deduplicationId: deduplicationId(event, leg),
    eventType: event.type,
    topic: leg.topic,
    exchange: leg.exchange,
    key: leg.key,
    headers,
    contentType,
    body,
    occurredAtMs: event.occurredAtMs,
    bytes: byteLength(body) + (leg.key === null ? 0 : Buffer.byteLength(leg.key)) + headerBytes(headers),
  };
}

/**
 * The serializer's win over the route's, and these over the event's own, whatever the case of their letters; the content
 * type is the serializer's in any case. Mostly there are the serializer's headers alone.
 */
function allHeaders(
  ofEvent: Readonly<Record<string, unknown>>,
  ofRoute: Readonly<Record<string, string>> | undefined,
  ofSerializer: Readonly<Record<string, string>> = {},
): Readonly<Record<string, string>> {
  if (ofRoute === undefined && isEmpty(ofEvent)) return ofSerializer;
  const others: Record<string, unknown> = { ...ofEvent, ...ofRoute };
  const names = Object.keys(others);
  const taken = new Set(['content-type', ...Object.keys(ofSerializer).map((name) => name.toLowerCase())]);
  const headers: Record<string, string> = {};
  for (const name of names) {
    const value = others[name];
    if (value !== null && !taken.has(name.toLowerCase())) headers[name] = asText(value);
  }
  return Object.assign(headers, ofSerializer);
}

function isEmpty(object: object): boolean {
  for (const _name in object) return false;
  return true;
}

/** Events emitted by plain SQL may have headers that are not text. */
function asText(value: unknown): string {
  return typeof value === 'string' ? value : JSON.stringify(value);
}

function byteLength(body: string | Uint8Array): number {
  return typeof body === 'string' ? Buffer.byteLength(body) : body.byteLength;
}

function headerBytes(headers: Readonly<Record<string, string>>): number {
  let bytes = 0;
  for (const name in headers) bytes += name.length + Buffer.byteLength(headers[name] as string) + 2;
  return bytes;
}
