import { isUint8Array } from 'node:util/types';
import { PostcommitError } from '../errors.ts';
import { isUuid } from '../uuid.ts';
import { bodyOfFrame } from './confluent-frame.ts';
import type { IncomingMessage, ReceivedEvent } from './received-event.ts';

/** The version of the envelope that this package reads. An envelope without `envelopeVersion` has it. */
const envelopeVersion = 1;
const cloudEventsVersion = /^1\./;
const cloudEventsPrefixes = ['ce_', 'ce-', 'cloudevents_', 'cloudevents:'];

/**
 * Reads an event from a message in any of the wire formats: the envelope, CloudEvents (structured and binary), or the payload alone with
 * the facts in headers. Bytes may have the id of a schema in front, as `confluentJson` writes it. Throws a `PostcommitError` for a message that can never be read: `POSTCOMMIT_E_BAD_MESSAGE`,
 * `POSTCOMMIT_E_ENVELOPE_VERSION` or `POSTCOMMIT_E_BAD_ID`.
 *
 * The headers of the envelope and of the raw format are the same. A body is an envelope if it is an object with `eventId` and either
 * `eventType` and `data` or, in a later version, `envelopeVersion`, whose id is not contradicted by the header `event-id`.
 *
 * @example
 * import { readMessage } from 'postcommit';
 *
 * const received = readMessage({ body: '{"total": 3}', headers: { 'event-id': id, 'event-type': 'order.created' } });
 * console.log(received.payload);
 */
export function readMessage(given: IncomingMessage): ReceivedEvent {
  const message = { ...given, headers: given?.headers ?? {}, body: readBody(given?.body) };
  const contentType = message.contentType ?? message.headers['content-type'] ?? '';
  if (/^application\/cloudevents\+json\b/i.test(contentType)) return structured(message);
  if (/^application\/cloudevents-batch/i.test(contentType)) throw bad('A batch of CloudEvents is not supported.');
  const prefix = cloudEventsPrefixes.find((one) => message.headers[`${one}specversion`] !== undefined);
  if (prefix !== undefined) return binary(message, prefix);
  const body = parse(message.body);
  if (isEnvelope(body, message.headers)) return enveloped(body, message);
  return raw(body, message);
}

type Fields = Readonly<Record<string, unknown>>;

interface Message extends IncomingMessage {
  readonly headers: Readonly<Record<string, string>>;
}

function readBody(body: unknown): string | Uint8Array {
  if (typeof body === 'string' || isUint8Array(body)) return bodyOfFrame(body);
  throw bad(`The body must be a string or a Uint8Array. Got ${shown(body)}.`);
}

function isEnvelope(body: unknown, headers: Message['headers']): body is Fields {
  if (!isObject(body) || !('eventId' in body)) return false;
  // The payload of a raw message may be the envelope of another event.
  const { eventId } = body;
  const id = headers['event-id'];
  if (id !== undefined && (typeof eventId !== 'string' || String(id).toLowerCase() !== eventId.toLowerCase()))
    return false;
  return 'envelopeVersion' in body || ('eventType' in body && 'data' in body);
}

function enveloped(body: Fields, message: Message): ReceivedEvent {
  const version = body.envelopeVersion ?? envelopeVersion;
  if (version !== envelopeVersion) {
    throw new PostcommitError('POSTCOMMIT_E_ENVELOPE_VERSION', `The envelope has version ${shown(version)}.`);
  }
  const { aggregate } = body;
  if (!isObject(aggregate)) throw bad('aggregate is not an object.');
  return {
    id: readId(body.eventId),
    type: readText('eventType', body.eventType),
    payload: body.data,
    schemaVersion: readVersion('schemaVersion', body.schemaVersion),
    aggregate: { type: readText('aggregate.type', aggregate.type), id: readText('aggregate.id', aggregate.id) },
    key: keyOf(message),
    seq: readSeq('eventSeq', body.eventSeq),
    occurredAt: readTime('occurredAt', body.occurredAt),
    headers: message.headers,
  };
}

function raw(payload: unknown, message: Message): ReceivedEvent {
  const { headers } = message;
  if (headers['event-id'] === undefined || headers['event-type'] === undefined) {
    throw bad('It is neither an envelope nor a CloudEvent, and has no headers event-id and event-type.');
  }
  const [aggregateType, aggregateId] = [headers['aggregate-type'], headers['aggregate-id']];
  return {
    id: readId(headers['event-id']),
    type: readText('event-type', headers['event-type']),
    payload,
    schemaVersion: readVersion('schema-version', headers['schema-version'] ?? '1'),
    aggregate: aggregateType && aggregateId ? { type: aggregateType, id: aggregateId } : null,
    key: keyOf(message),
    seq: readSeq('event-seq', headers['event-seq']),
    occurredAt: readTime('occurred-at', headers['occurred-at']),
    headers,
  };
}

function structured(message: Message): ReceivedEvent {
  const body = parse(message.body);
  if (!isObject(body)) throw bad('A structured CloudEvent is not an object.');
  const payload = 'data_base64' in body ? parse(Buffer.from(String(body.data_base64), 'base64')) : (body.data ?? null);
  return cloudEvent(body, payload, message);
}

function binary(message: Message, prefix: string): ReceivedEvent {
  const attributes: Record<string, string> = Object.create(null);
  for (const [name, value] of Object.entries(message.headers)) {
    // The bindings of HTTP and NATS percent-encode, the others do not.
    if (name.startsWith(prefix)) attributes[name.slice(prefix.length)] = prefix === 'ce-' ? decode(value) : value;
  }
  const isEmpty = message.body.length === 0;
  return cloudEvent(attributes, isEmpty ? null : parse(message.body), message);
}

function cloudEvent(attributes: Fields, payload: unknown, message: Message): ReceivedEvent {
  const { specversion, aggregatetype, aggregateid, partitionkey } = attributes;
  if (typeof specversion !== 'string' || !cloudEventsVersion.test(specversion)) {
    throw new PostcommitError('POSTCOMMIT_E_ENVELOPE_VERSION', `The CloudEvent has specversion ${shown(specversion)}.`);
  }
  const headers: Record<string, string> = { ...message.headers };
  for (const name of ['traceparent', 'tracestate']) {
    const value = attributes[name];
    if (typeof value === 'string') headers[name] ??= value;
  }
  const isOurs = typeof aggregatetype === 'string' && typeof aggregateid === 'string';
  return {
    id: readId(attributes.id),
    type: readText('type', attributes.type),
    payload,
    schemaVersion: readVersion('schemaversion', attributes.schemaversion ?? 1),
    aggregate: isOurs ? { type: aggregatetype, id: aggregateid } : null,
    key: typeof partitionkey === 'string' ? partitionkey : keyOf(message),
    // Sequences of other systems may be any text.
    seq: isOurs ? readSeq('sequence', attributes.sequence) : null,
    occurredAt: readTime('time', attributes.time),
    headers,
  };
}

function keyOf({ headers, key }: Message): string | null {
  return headers['event-key'] ?? key ?? null;
}

const utf8 = new TextDecoder('utf-8', { fatal: true });

function parse(body: string | Uint8Array): unknown {
  try {
    return JSON.parse(typeof body === 'string' ? body : utf8.decode(body));
  } catch (error) {
    throw bad(`The body is not JSON: ${error instanceof Error ? error.message : String(error)}.`, error);
  }
}

function readId(value: unknown): string {
  if (isUuid(value)) return value.toLowerCase();
  throw new PostcommitError('POSTCOMMIT_E_BAD_ID', `Got ${shown(value)} in a message.`);
}

function readText(name: string, value: unknown): string {
  if (typeof value === 'string' && value !== '') return value;
  throw bad(`${name} must be a text that is not empty. Got ${shown(value)}.`);
}

function readVersion(name: string, value: unknown): number {
  const version = typeof value === 'string' && /^\d{1,9}$/.test(value) ? Number(value) : value;
  if (Number.isSafeInteger(version) && (version as number) >= 1) return version as number;
  throw bad(`${name} must be a whole number from 1. Got ${shown(value)}.`);
}

/** Without the zeros in front that CloudEvents needs. */
function readSeq(name: string, value: unknown): string | null {
  if (value === undefined || value === null) return null;
  if (typeof value === 'string' && /^\d{1,19}$/.test(value)) return BigInt(value).toString();
  throw bad(`${name} must be a whole number as text. Got ${shown(value)}.`);
}

function readTime(name: string, value: unknown): Date | null {
  if (value === undefined || value === null) return null;
  const time = new Date(typeof value === 'string' ? value : Number.NaN);
  if (!Number.isNaN(time.getTime())) return time;
  throw bad(`${name} must be a time. Got ${shown(value)}.`);
}

function decode(value: string): string {
  try {
    return decodeURIComponent(value);
  } catch {
    return value;
  }
}

function isObject(value: unknown): value is Fields {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

function shown(value: unknown): string {
  const text = JSON.stringify(value) ?? String(value);
  return text.length > 80 ? `${text.slice(0, 80)}...` : text;
}

function bad(detail: string, cause?: unknown): PostcommitError {
  return new PostcommitError('POSTCOMMIT_E_BAD_MESSAGE', detail, { cause });
}
