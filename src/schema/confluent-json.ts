import type { EventCatalogue } from '../catalogue/catalogue.ts';
import { findDefinition, requireCatalogue } from '../catalogue/catalogue.ts';
import { runUpcasts } from '../catalogue/upcast.ts';
import { PostcommitError } from '../errors.ts';
import { unknownOption } from '../suggest.ts';
import { toFrame } from '../wire/confluent-frame.ts';
import type { DeliveredEvent } from '../wire/delivered-event.ts';
import { factHeaders, traceIdOf } from '../wire/event-facts.ts';
import type { Serialized, Serializer } from '../wire/serializer.ts';
import { extractSchemas } from './extract-schemas.ts';
import { SchemaRegistry } from './registry.ts';
import { SchemaIds } from './schema-ids.ts';
import { isSubjectPattern, subjectName, subjectPatternDefault } from './subject-name.ts';

export interface ConfluentJsonOptions {
  /** The URL of a registry with Confluent's API, with a user and password where it needs them. Apicurio has it at `/apis/ccompat/v7`. */
  registry: string;
  /** The catalogue, made by `defineEvents`: the JSON Schema of each event type comes from it. */
  events: EventCatalogue;
  /**
   * The subject of an event's schema: a pattern with `{type}` and `{topic}`, or a function. `postcommit schema check --registry` has the
   * same default, and `--subject` for another pattern. `'{topic}-value'` is what Confluent's clients use by default, for topics with
   * events of one type. Default `'{type}'`.
   */
  subject?: string | ((event: DeliveredEvent, topic: string) => string);
  /** Register schemas that their subject lacks. Default `false`: an event whose schema is not registered is a failed attempt. */
  register?: boolean;
  /** How long one request to the registry may take, in milliseconds, from 1 to 60,000. Default 5,000. */
  timeoutMs?: number;
  /** How many ids of schemas are remembered, from 1 to 1,000,000: one for each subject and event type. Default 1,000. */
  idsMax?: number;
}

const known = ['registry', 'events', 'subject', 'register', 'timeoutMs', 'idsMax'];

/**
 * The wire format of Confluent's serializers for JSON Schema: a zero byte, the id of the schema in four bytes, and the payload as JSON.
 * Everything else is in the headers, as in `raw()`. The id comes from a schema registry, once for each subject and event type. While the
 * registry is down, events whose id is not known yet wait, and no attempt is counted.
 *
 * The payload has the newest version of the catalogue: older ones go through its upcasts.
 *
 * @example
 * import { confluentJson, createRelay } from 'postcommit';
 * import { kafka } from 'postcommit/kafka';
 *
 * const serializer = confluentJson({ registry: 'http://localhost:8081', events });
 * createRelay({ destinations: { orders: { publisher: kafka({ brokers: ['localhost:9092'] }), serializer } } });
 */
export function confluentJson(options: ConfluentJsonOptions): Serializer {
  const { events, register = false, subject = subjectPatternDefault, idsMax = 1_000 } = checked(options);
  const subjectOf =
    typeof subject === 'string'
      ? ({ type }: DeliveredEvent, topic: string) => subjectName(subject, { type, topic })
      : (event: DeliveredEvent, topic: string) => checkedSubject(subject(event, topic));
  const registry = new SchemaRegistry(options.registry, { timeoutMs: options.timeoutMs ?? 5_000 });
  const schemas = extractSchemas(events).events;
  const ids = new SchemaIds({ registry, register, idsMax });
  return {
    serialize(event, { topic }) {
      const newest = newestOf(event, events);
      const schema = schemas[event.type]?.schema ?? true;
      const of = { subject: subjectOf(event, topic), type: event.type, schema };
      const id = ids.known(of);
      // Not a promise if the id is known: messages that are ready at once are sent in one batch.
      return id === undefined
        ? ids.ask(of).then((asked) => toMessage(event, asked, newest))
        : toMessage(event, id, newest);
    },
    health: () => ids.health(),
  };
}

interface NewestJson {
  readonly version: number;
  readonly json: string;
}

/** The text that the database has, unless the payload is of an older version. */
function newestOf({ type, schemaVersion, payloadJson }: DeliveredEvent, events: EventCatalogue): NewestJson {
  const definition = findDefinition(events, type);
  if (definition === undefined) {
    throw new PostcommitError('POSTCOMMIT_E_NO_JSON_SCHEMA', `${type} is not in the catalogue of confluentJson().`);
  }
  const { version } = definition;
  if (schemaVersion === version) return { version, json: payloadJson };
  if (schemaVersion > version) {
    const detail = `It is version ${schemaVersion} of ${type}; the newest in the catalogue is ${version}.`;
    throw new PostcommitError('POSTCOMMIT_E_UNKNOWN_VERSION', detail);
  }
  const payload = runUpcasts(definition, { type, version: schemaVersion, payload: JSON.parse(payloadJson) });
  return { version, json: JSON.stringify(payload) };
}

function toMessage(event: DeliveredEvent, schemaId: number, { version, json }: NewestJson): Serialized {
  return {
    body: toFrame(schemaId, json),
    contentType: 'application/octet-stream',
    headers: { ...factHeaders(event, traceIdOf(event)), 'schema-version': String(version) },
  };
}

function checkedSubject(subject: unknown): string {
  if (typeof subject === 'string' && subject !== '') return subject;
  throw new Error(`confluentJson: subject() must return a string for every event. Got ${String(subject)}.`);
}

function checked(options: ConfluentJsonOptions): ConfluentJsonOptions {
  const unknown = unknownOption(options ?? {}, known);
  if (unknown !== undefined) throw bad(unknown);
  const { registry, events, subject, register, timeoutMs = 1, idsMax = 1 } = options ?? {};
  if (typeof registry !== 'string') throw bad('registry must be the URL of a schema registry.');
  if (events === undefined) throw bad('events is required: the catalogue that defineEvents() returns.');
  requireCatalogue(events, 'confluentJson');
  if (typeof subject === 'string' && !isSubjectPattern(subject, ['{type}', '{topic}'])) {
    throw bad('subject must be a pattern with {type} and {topic}, such as {topic}-value.');
  }
  if (subject !== undefined && typeof subject !== 'string' && typeof subject !== 'function') {
    throw bad('subject must be a pattern, or a function of event and topic.');
  }
  if (register !== undefined && typeof register !== 'boolean') throw bad('register must be true or false.');
  if (!isWhole(timeoutMs, 60_000)) throw bad('timeoutMs must be a whole number from 1 to 60000.');
  if (!isWhole(idsMax, 1_000_000)) throw bad('idsMax must be a whole number from 1 to 1000000.');
  return options;
}

function isWhole(value: unknown, max: number): boolean {
  return Number.isInteger(value) && (value as number) >= 1 && (value as number) <= max;
}

function bad(detail: string): PostcommitError {
  return new PostcommitError('POSTCOMMIT_E_BAD_OPTION', `confluentJson: ${detail}`);
}
