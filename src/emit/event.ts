import { types } from 'node:util';
import type { DefinedEvent, EventCatalogue, EventTypeOf, PayloadInput, SchemaOf } from '../catalogue/catalogue.ts';
import { requireDefinition } from '../catalogue/catalogue.ts';
import { parsePayload, thrownText } from '../catalogue/parse-payload.ts';
import { isStorable } from '../database/storable-text.ts';
import { PostcommitError } from '../errors.ts';
import { shown } from '../format.ts';
import type { Metrics } from '../metrics/metrics.ts';
import type { InsertableEvent } from '../outbox/emitting/insert.ts';
import { payloadToJson } from '../payload-json.ts';
import { defaultQueue, isQueueName } from '../queue-name.ts';
import { didYouMean } from '../suggest.ts';
import { isTracingLoaded, loadTracing } from '../telemetry/trace-context.ts';
import { isUuid, uuidV7 } from '../uuid.ts';
import { headersMax } from './header-limits.ts';
import { addTraceHeaders } from './trace-headers.ts';

/** An event to emit. */
export interface OutboxEvent<Payload = unknown, Type extends string = string> {
  /** What happened, e.g. `order.created`. */
  type: Type;
  /** What it happened to: a type and an id. Events of one aggregate are delivered in commit order. */
  aggregate: readonly [type: string, id: string | number | bigint];
  /** Anything that JSON can hold. */
  payload: Payload;
  /** The event's identity, a UUID. Default: a new time-ordered one. */
  id?: string;
  /**
   * Travels with the event: at most 128 names and 16,384 bytes. With an OpenTelemetry SDK, the context of the span `emit` is added as
   * `traceparent`, unless there are 128 names already.
   */
  headers?: Readonly<Record<string, string>>;
  /** Do not deliver before this time: at most 366 days ahead, by the database's clock. */
  availableAt?: Date;
  /** Do not deliver before this many milliseconds have passed, by the database's clock: at most 366 days. */
  delayMs?: number;
  /** The version of the payload. With a catalogue it is the catalogue's. Default 1. */
  schemaVersion?: number;
  /** The ordering key, instead of the aggregate; `null` for no order. Default: `orderingKey` of the catalogue, or the aggregate. */
  key?: string | null;
  /**
   * The event becomes a dead letter after this many failed attempts, from 1 to 1,000, whatever the retry policies of its
   * handlers and of the relay say at that time. Default: as they say.
   */
  attemptsMax?: number;
  /**
   * The queue that delivers it: 1 to 100 letters, digits, dots, hyphens and underscores. Only relays that work this queue do.
   * Default: that of the catalogue, then of `queueOf`, then `default`.
   */
  queue?: string;
}

/** The events that an outbox with this catalogue takes. Without a catalogue: every event. */
export type EventToEmit<Catalogue extends EventCatalogue> = string extends keyof Catalogue
  ? OutboxEvent
  : {
      [Type in EventTypeOf<Catalogue>]: OutboxEvent<PayloadInput<SchemaOf<Catalogue, Type>>, Type>;
    }[EventTypeOf<Catalogue>];

export interface EventLimits {
  events: EventCatalogue | undefined;
  payloadBytesMax: number;
  queueOf: QueueRule | undefined;
  metrics?: Metrics | undefined;
}

/** Chooses the queue of an event. `undefined`: the queue `default`. */
export type QueueRule = (event: OutboxEvent) => string | undefined;

const fields: ReadonlySet<string> = new Set<keyof OutboxEvent>([
  'type',
  'aggregate',
  'payload',
  'id',
  'headers',
  'availableAt',
  'delayMs',
  'schemaVersion',
  'key',
  'attemptsMax',
  'queue',
]);

/** Two names share an index entry, and PostgreSQL's limit for one is 2,704 bytes. */
const nameBytesMax = 1_000;
const headersBytesMax = 16_384;
/** Also in migrations/routines/check_event.sql, for `availableAt` and for SQL. */
const delayMsMax = 366 * 24 * 3_600_000;
/** Also in migrations/routines/check_event.sql. */
const attemptsMaxMax = 1_000;
/** The years 1 to 9999: PostgreSQL does not read the ISO format of others. */
const timeMin = -62_135_596_800_000;
const timeMax = 253_402_300_799_999;

/**
 * Checks an event and converts it for the insert. Fails with a coded error; nothing is sent to the database. Returns a promise
 * only for an asynchronous schema, and until tracing is loaded.
 */
export function toInsertable(event: OutboxEvent, limits: EventLimits): InsertableEvent | Promise<InsertableEvent> {
  const insertable = checkFields(event, limits);
  const checked = limits.events && checkPayload(insertable, event, limits.events);
  // Everything that the caller may change later has been read by now.
  if (checked instanceof Promise || !isTracingLoaded()) return withTraceLater(insertable, checked);
  addTraceHeaders(insertable.headers, insertable);
  return insertable;
}

async function withTraceLater(insertable: InsertableEvent, checked: void | Promise<void>): Promise<InsertableEvent> {
  await checked;
  await loadTracing();
  addTraceHeaders(insertable.headers, insertable);
  return insertable;
}

/** The same for a caller that cannot wait, without the trace context: an asynchronous schema is refused. */
export function toInsertableNow(event: OutboxEvent, limits: EventLimits): InsertableEvent {
  const insertable = checkFields(event, limits);
  const checked = limits.events && checkPayload(insertable, event, limits.events);
  if (!(checked instanceof Promise)) return insertable;
  checked.catch(() => {}); // Its result is not used.
  throw bad(`The schema of ${insertable.type} is asynchronous, which cannot be used here.`);
}

/** Runs the schema of the type, and sets the ordering key that its definition derives from the payload. */
function checkPayload(insertable: InsertableEvent, event: OutboxEvent, events: EventCatalogue): void | Promise<void> {
  const { type } = insertable;
  const definition = requireDefinition(events, type) as DefinedEvent;
  const parsed = parsePayload(definition, event.payload, (detail, cause) => {
    return new PostcommitError('POSTCOMMIT_E_PAYLOAD_INVALID', `${type}: ${detail}.`, { cause });
  });
  const setKey = ({ payload }: { payload: unknown }) => {
    if (event.key === undefined && definition.orderingKey) insertable.orderingKey = keyOf(definition, type, payload);
  };
  return parsed instanceof Promise ? parsed.then(setKey) : setKey(parsed);
}

function keyOf(definition: DefinedEvent, type: string, payload: unknown): string {
  const what = `orderingKey of ${type}`;
  let key: string | null | undefined;
  try {
    key = definition.orderingKey?.(payload);
  } catch (error) {
    throw new PostcommitError('POSTCOMMIT_E_BAD_EVENT', `${what} threw ${thrownText(error)}.`, { cause: error });
  }
  return key === null ? '' : name(key, what);
}

/** The part of it that waits for nothing: without the payload's schema and the trace context. */
export function checkFields(event: OutboxEvent, limits: EventLimits): InsertableEvent {
  if (typeof event !== 'object' || event === null) throw bad('An event is an object with type, aggregate and payload.');
  // A misspelt delayMs would silently mean no delay.
  for (const field of Object.keys(event)) if (!fields.has(field)) throw unknownField(field);
  const type = name(event.type, 'type');
  const definition = requireDefinition(limits.events, type);
  if (!Array.isArray(event.aggregate) || event.aggregate.length !== 2) {
    throw bad(`aggregate must be [type, id], e.g. ['order', order.id].`);
  }
  const [aggregateType, aggregateId] = event.aggregate as unknown[];
  const schemaVersion = event.schemaVersion ?? definition?.version ?? 1;
  if (!Number.isInteger(schemaVersion) || schemaVersion < 1 || schemaVersion > 2_147_483_647) {
    throw bad(`schemaVersion must be a whole number from 1. Got ${shown(schemaVersion)}.`);
  }
  if (definition !== undefined && schemaVersion !== definition.version) {
    throw bad(
      `schemaVersion of ${type} is ${definition.version} in the catalogue. Got ${schemaVersion}; leave it out.`,
    );
  }
  if (event.id !== undefined && !isUuid(event.id)) {
    const detail = `Got ${shown(event.id)}, and nothing was written. Leave id out of a new event to get a time-ordered one.`;
    throw new PostcommitError('POSTCOMMIT_E_BAD_ID', detail);
  }
  return {
    id: event.id?.toLowerCase() ?? uuidV7(),
    aggregateType: name(aggregateType, 'aggregate[0]'),
    aggregateId: name(isId(aggregateId) ? String(aggregateId) : aggregateId, 'aggregate[1]'),
    type,
    schemaVersion,
    orderingKey: orderingKey(event.key),
    payloadJson: payloadToJson(event.payload, limits.payloadBytesMax),
    headers: toHeaders(event.headers),
    ...toTime(event),
    attemptsMax: toAttemptsMax(event.attemptsMax),
    queue: queueOf(event, definition?.queue, limits.queueOf),
  };
}

function bad(detail: string): PostcommitError {
  return new PostcommitError('POSTCOMMIT_E_BAD_EVENT', detail);
}

function unknownField(field: string): PostcommitError {
  const known = [...fields];
  return bad(`An event has no field ${shown(field)}.${didYouMean(field, known)} Valid fields: ${known.join(', ')}.`);
}

function isId(value: unknown): value is number | bigint {
  return typeof value === 'bigint' || (typeof value === 'number' && Number.isSafeInteger(value));
}

function name(value: unknown, what: string): string {
  if (typeof value !== 'string' || value === '' || Buffer.byteLength(value) > nameBytesMax) {
    throw bad(`${what} must be a string of 1 to ${nameBytesMax} bytes. Got ${shown(value)}.`);
  }
  return storable(value, what);
}

function orderingKey(key: unknown): string | undefined {
  if (key === undefined) return undefined;
  return key === null ? '' : name(key, 'key');
}

/** What `emit` says comes first, then the catalogue, then the rule. */
function queueOf(event: OutboxEvent, ofType: string | undefined, rule: QueueRule | undefined): string | undefined {
  const queue: unknown = event.queue ?? ofType ?? rule?.(event);
  if (queue === undefined || queue === defaultQueue) return undefined;
  if (isQueueName(queue)) return queue;
  throw new PostcommitError('POSTCOMMIT_E_BAD_QUEUE', `Got ${shown(queue)}.`);
}

function toHeaders(given: OutboxEvent['headers']): Record<string, string> {
  const headers = noHeaders();
  if (given === undefined) return headers;
  if (typeof given !== 'object' || given === null || Array.isArray(given))
    throw bad('headers must be an object whose values are strings.');
  let bytes = 0;
  for (const [key, value] of Object.entries(given)) {
    if (typeof value !== 'string') throw bad(`headers[${JSON.stringify(key)}] must be a string. Got ${shown(value)}.`);
    storable(key, 'A header name');
    headers[key] = storable(value, `headers[${JSON.stringify(key)}]`);
    bytes += Buffer.byteLength(key) + Buffer.byteLength(value);
  }
  const count = Object.keys(headers).length;
  if (count > headersMax) throw bad(`headers has ${count} names, the limit is ${headersMax}.`);
  if (bytes > headersBytesMax) throw bad(`headers have ${bytes} bytes, the limit is ${headersBytesMax}.`);
  return headers;
}

/** Without a prototype: a header may be named `__proto__`. */
function noHeaders(): Record<string, string> {
  return Object.create(null) as Record<string, string>;
}

function toAttemptsMax(value: unknown): number | undefined {
  if (value === undefined || (Number.isInteger(value) && Number(value) >= 1 && Number(value) <= attemptsMaxMax)) {
    return value as number | undefined;
  }
  throw bad(`attemptsMax must be a whole number from 1 to ${attemptsMaxMax}. Got ${shown(value)}.`);
}

function toTime(event: OutboxEvent): Pick<InsertableEvent, 'availableAt' | 'delayMs'> {
  const { availableAt, delayMs } = event;
  const refuse = (detail: string) => new PostcommitError('POSTCOMMIT_E_BAD_DELAY', detail);
  if (availableAt !== undefined && delayMs !== undefined) throw refuse('Give availableAt or delayMs, not both.');
  if (delayMs !== undefined && !(typeof delayMs === 'number' && delayMs >= 0 && delayMs <= delayMsMax)) {
    throw refuse(`delayMs must be from 0 to ${delayMsMax} (366 days). Got ${shown(delayMs)}.`);
  }
  if (availableAt !== undefined && !isTime(availableAt)) {
    throw refuse(`availableAt must be a valid Date of the years 1 to 9999. Got ${shown(availableAt)}.`);
  }
  return { availableAt, delayMs };
}

function isTime(value: unknown): boolean {
  // A Date of another realm (vm, some test runners) is not an instance of our Date.
  return types.isDate(value) && value.getTime() >= timeMin && value.getTime() <= timeMax;
}

function storable(text: string, what: string): string {
  if (!isStorable(text)) throw new PostcommitError('POSTCOMMIT_E_TEXT_NOT_STORABLE', `It is in ${what}.`);
  return text;
}
