import type { Message } from '../../../publishers/publisher.ts';
import type { DeliveredEvent } from '../../../wire/delivered-event.ts';
import type { Serialized } from '../../../wire/serializer.ts';
import { deduplicationId } from './deduplication-id.ts';
import type { Leg } from './leg.ts';

/** Builds the message for the publisher from the serializer's output, the event's headers and the route's. */
export function toMessage(event: DeliveredEvent, leg: Leg, serialized: Serialized): Message {
  const { body, contentType } = serialized;
  if (typeof body !== 'string' && !(body instanceof Uint8Array))
    throw new Error('it returned a body that is not a string or a Uint8Array');
  if (typeof contentType !== 'string') throw new Error('it returned no contentType');
  const headers = allHeaders(event, leg.headers, serialized.headers);
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
 * Merges the headers of the event, the route and the serializer. Names that differ only in case are one header, because
 * HTTP does not distinguish them: the later source replaces the earlier one. The content type is always the serializer's.
 * Most events have no headers beside the serializer's, which are then used as they are. Those come first: where a broker
 * has little room for headers, filters on them work whatever headers the event adds.
 */
function allHeaders(
  event: DeliveredEvent,
  ofRoute: Readonly<Record<string, string>> | undefined,
  ofSerializer: Readonly<Record<string, string>> = {},
): Readonly<Record<string, string>> {
  if (ofRoute === undefined && isEmpty(event.headers)) return ofSerializer;
  const ofFormat = new Map(Object.entries(ofSerializer).map((header) => [header[0].toLowerCase(), header]));
  const others = new Map<string, [name: string, value: string]>();
  for (const source of [textHeaders(event), ofRoute ?? {}]) {
    for (const [name, value] of Object.entries(source)) {
      const lowerCase = name.toLowerCase();
      const isTaken = ofFormat.has(lowerCase) || lowerCase === 'content-type';
      if (value !== null && !isTaken) others.set(lowerCase, [name, value]);
    }
  }
  // Unlike an assignment, this also defines a header that is called `__proto__`.
  return Object.fromEntries([...ofFormat.values(), ...others.values()]);
}

function isEmpty(object: object): boolean {
  for (const _name in object) return false;
  return true;
}

/** The event's headers, each as text or null. Other values, from events emitted by plain SQL, become their stored JSON. */
function textHeaders({ headers, headersJson }: DeliveredEvent): Readonly<Record<string, string | null>> {
  const isText = (value: unknown) => typeof value === 'string' || value === null;
  return Object.values(headers).every(isText) ? headers : readTexts(headersJson);
}

/**
 * The values of a JSON object as they are written, strings without their quotes. JSON.parse would make 12345678901234567000 of
 * 12345678901234567890 and Infinity of 1e400.
 */
function readTexts(json: string): Record<string, string | null> {
  const texts: [name: string, value: string | null][] = [];
  let depth = 0;
  let name = '';
  let start = 1;
  for (const { 0: token, index } of json.matchAll(/"(?:[^"\\]|\\.)*"|[{}[\],:]/g)) {
    if (token === '}' || token === ']') depth--;
    if (token === ':' && depth === 1) {
      name = JSON.parse(json.slice(start, index)) as string;
      start = index + 1;
    } else if ((token === ',' && depth === 1) || depth === 0) {
      const value = json.slice(start, index).trim();
      if (token !== '{') texts.push([name, /^["n]/.test(value) ? (JSON.parse(value) as string | null) : value]);
      start = index + 1;
    }
    if (token === '{' || token === '[') depth++;
  }
  return Object.fromEntries(texts);
}

function byteLength(body: string | Uint8Array): number {
  return typeof body === 'string' ? Buffer.byteLength(body) : body.byteLength;
}

function headerBytes(headers: Readonly<Record<string, string>>): number {
  let bytes = 0;
  for (const name in headers) bytes += Buffer.byteLength(name) + Buffer.byteLength(headers[name] as string) + 2;
  return bytes;
}
