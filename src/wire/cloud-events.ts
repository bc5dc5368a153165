import { PostcommitError } from '../errors.ts';
import { unknownOption } from '../suggest.ts';
import type { DeliveredEvent } from './delivered-event.ts';
import { isoTime } from './event-facts.ts';
import type { Serializer } from './serializer.ts';

export interface CloudEventsOptions {
  /** The origin of events: a URI or a part of one, e.g. `/orders` or `https://example.com/orders`. */
  source: string | ((event: DeliveredEvent) => string);
  /**
   * `structured`: attributes and payload are one JSON object in the body. `binary`: the payload is the body and the
   * attributes are headers, named as the broker's binding asks. Default `structured`.
   */
  mode?: 'structured' | 'binary';
  /** The attribute `type`, e.g. with a domain in front: `(event) => 'com.example.' + event.type`. Default: the event type. */
  type?: (event: DeliveredEvent) => string;
  /** The attribute `dataschema`: the URI of the schema that the payload follows. Default: none. */
  dataSchema?: string | ((event: DeliveredEvent) => string | undefined);
}

/**
 * CloudEvents 1.0 in JSON: `id`, `source`, `type`, `time`, `subject` (the aggregate's id) and `datacontenttype`, the
 * extensions `partitionkey`, `traceparent` and `tracestate` where the event has them, `sequence`, and `aggregatetype`,
 * `aggregateid` and `schemaversion`.
 *
 * @example
 * import { cloudEvents } from 'postcommit';
 *
 * const serializer = cloudEvents({ source: '/orders', mode: 'binary' });
 */
export function cloudEvents(options: CloudEventsOptions): Serializer {
  const { source, mode = 'structured', type, dataSchema } = checked(options);
  const attributesOf = (event: DeliveredEvent): Attributes => ({
    specversion: '1.0',
    id: event.id,
    source: typeof source === 'function' ? required('source', source(event)) : source,
    type: type === undefined ? event.type : required('type', type(event)),
    time: isoTime(event.occurredAtMs),
    subject: event.aggregate.id,
    dataschema: typeof dataSchema === 'function' ? dataSchema(event) : dataSchema,
    partitionkey: event.partitionKey,
    sequence: event.seq.padStart(sequenceDigits, '0'),
    traceparent: textOrNone(event.headers.traceparent),
    tracestate: textOrNone(event.headers.tracestate),
    aggregatetype: event.aggregate.type,
    aggregateid: event.aggregate.id,
    schemaversion: event.schemaVersion,
  });
  return {
    serialize: (event, { cloudEventsPrefix }) =>
      mode === 'structured'
        ? structured(event, attributesOf(event))
        : binary(event, attributesOf(event), cloudEventsPrefix),
  };
}

/**
 * The specification wants sequences that order as text, so they have the digits of the largest seq. There is no `sequencetype`: its
 * only value, `Integer`, is for 32-bit numbers without gaps.
 */
const sequenceDigits = '9223372036854775807'.length;

type Attributes = Record<string, string | number | null | undefined>;

function required(name: string, value: unknown): string {
  if (typeof value === 'string' && value !== '') return value;
  throw new Error(`cloudEvents: ${name}() must return a string for every event. Got ${String(value)}.`);
}

/** Events emitted by plain SQL may have headers that are not strings. */
function textOrNone(value: unknown): string | undefined {
  return typeof value === 'string' ? value : undefined;
}

function structured(event: DeliveredEvent, attributes: Attributes) {
  let text = '{';
  for (const name in attributes) {
    const value = attributes[name];
    if (isPresent(value)) text += `"${name}":${JSON.stringify(value)},`;
  }
  return {
    body: `${text}"datacontenttype":"application/json","data":${event.payloadJson}}`,
    contentType: 'application/cloudevents+json; charset=utf-8',
  };
}

function binary(event: DeliveredEvent, attributes: Attributes, prefix: string) {
  const headers: Record<string, string> = {};
  // The bindings of HTTP and NATS, whose headers are ASCII. The others carry any text unchanged.
  const encode = prefix === 'ce-' ? percentEncoded : String;
  for (const name in attributes) {
    const value = attributes[name];
    if (isPresent(value)) headers[prefix + name] = encode(value);
  }
  // No header for datacontenttype: the message's content type is that.
  return { body: event.payloadJson, contentType: 'application/json', headers };
}

/** An attribute is left out rather than empty. */
function isPresent(value: Attributes[string]): value is string | number {
  return value !== null && value !== undefined && value !== '';
}

const plainPattern = /^[\x21\x23\x24\x26-\x7e]*$/;

function percentEncoded(value: string | number): string {
  const text = String(value);
  if (plainPattern.test(text)) return text;
  return text.toWellFormed().replace(/[^\x21-\x7e]+|["%]/gu, encodeURIComponent);
}

function checked(options: CloudEventsOptions): CloudEventsOptions {
  const known = ['source', 'mode', 'type', 'dataSchema'];
  const unknown = unknownOption(options ?? {}, known);
  if (unknown !== undefined) throw bad(unknown);
  const { source, mode, type, dataSchema } = options ?? {};
  if (typeof source !== 'function' && (typeof source !== 'string' || source === '')) {
    throw bad('source must be a URI or a part of one, e.g. "/orders", or a function that returns one.');
  }
  if (mode !== undefined && mode !== 'structured' && mode !== 'binary') {
    throw bad(`mode must be 'structured' or 'binary'. Got ${String(mode)}.`);
  }
  if (type !== undefined && typeof type !== 'function') throw bad('type must be a function of the event.');
  if (dataSchema !== undefined && typeof dataSchema !== 'function' && typeof dataSchema !== 'string') {
    throw bad('dataSchema must be a URI, or a function that returns one.');
  }
  return options;
}

function bad(detail: string): PostcommitError {
  return new PostcommitError('POSTCOMMIT_E_BAD_OPTION', `cloudEvents: ${detail}`);
}
