import type { StandardSchemaV1 } from '@standard-schema/spec';
import { PostcommitError } from '../errors.ts';
import { shown } from '../format.ts';
import { isQueueName, queueNameRule } from '../queue-name.ts';
import { didYouMean, unknownOption } from '../suggest.ts';

/** Turns a payload of one version into one of the next. Called with the payload as it was stored, or as the step before left it. */
// biome-ignore lint/suspicious/noExplicitAny: an upcast names the type of an old version, which no schema has any more.
export type Upcast = (payload: any) => unknown;

/** What is known of one event type. `Schema` is `unknown` for a type without one. */
export interface EventDefinition<Schema = unknown> {
  /** The version of the payload: written with each event, raised by one with each change that old readers cannot read. Default 1. */
  readonly version?: number;
  /**
   * Describes the payload of the newest version. Any Standard Schema library fits: zod, valibot, arktype. `emit` checks the
   * payload before it is written, and writes it as it was given. Handlers get the output of the schema.
   */
  readonly schema?: Schema;
  /**
   * The way from each older version to the next: `{ 1: (v1) => v2, 2: (v2) => v3 }` for version 3, without a gap. Synchronous,
   * without side effects. An upcast that throws makes the event a dead letter.
   */
  readonly upcast?: Readonly<Record<number, Upcast>>;
  /** The queue that delivers the event, unless `emit` says otherwise. Default: what `queueOf` of the outbox returns. */
  readonly queue?: string;
  /**
   * The ordering key of the event, unless `emit` says otherwise; `null` for no order. Called with the output of the schema.
   * Default: the aggregate.
   */
  orderingKey?(payload: PayloadOutput<Schema>): string | null;
  /** What the event says, for generated documentation. */
  readonly description?: string;
  /** The JSON Schema of the payload, for a schema from which none can be generated. */
  readonly jsonSchema?: Readonly<Record<string, unknown>>;
}

/** What a payload may be before the schema has read it: what `emit` takes. */
export type PayloadInput<Schema> = Schema extends StandardSchemaV1 ? StandardSchemaV1.InferInput<Schema> : unknown;

/** What the schema makes of a payload: what handlers get. */
export type PayloadOutput<Schema> = Schema extends StandardSchemaV1 ? StandardSchemaV1.InferOutput<Schema> : unknown;

/** A definition that `defineEvents` has checked. */
export interface DefinedEvent<Schema = unknown> extends EventDefinition<Schema> {
  readonly version: number;
  readonly upcast: Readonly<Record<number, Upcast>>;
}

const catalogueBrand = Symbol.for('postcommit.EventCatalogue');

/** The event types of a service, by name, with the schema of each. Made by `defineEvents`. */
export type EventCatalogue<Schemas = Readonly<Record<string, unknown>>> = {
  readonly [Type in keyof Schemas]: DefinedEvent<Schemas[Type]>;
} & {
  // A brand and not a class: there may be two copies of this package in one process.
  readonly [catalogueBrand]: true;
};

/** The names of the event types of a catalogue. */
export type EventTypeOf<Catalogue extends EventCatalogue> = Extract<keyof Catalogue, string>;

/** The schema of one event type of a catalogue. */
export type SchemaOf<Catalogue extends EventCatalogue, Type extends string> =
  Catalogue[Type] extends DefinedEvent<infer Schema> ? Schema : unknown;

/** Complete by its type: a field that is added above and not here does not compile. */
const fields: Record<keyof EventDefinition, true> = {
  version: true,
  schema: true,
  upcast: true,
  queue: true,
  orderingKey: true,
  description: true,
  jsonSchema: true,
};
const fieldNames = Object.keys(fields);

/** As `emit` allows. */
const typeBytesMax = 1_000;
const versionMax = 10_000;

/**
 * Lists the event types of a service: the catalogue that `createOutbox`, `createRelay` and consumers take as `events`. Refuses a
 * definition that cannot work.
 *
 * @example
 * import { z } from 'zod';
 *
 * export const events = defineEvents({
 *   'order.created': {
 *     version: 2,
 *     schema: z.object({ id: z.string(), total: z.number(), currency: z.string() }),
 *     upcast: { 1: (v1: { id: string; total: number }) => ({ ...v1, currency: 'EUR' }) },
 *   },
 *   'report.requested': { schema: z.object({ month: z.string() }), queue: 'reports' },
 * });
 */
export function defineEvents<Schemas extends Record<string, unknown>>(
  definitions: {
    readonly [Type in keyof Schemas]: EventDefinition<Schemas[Type]>;
  },
): EventCatalogue<Schemas> {
  if (!isRecord(definitions)) throw bad('defineEvents() takes an object of event types and their definitions.');
  const entries = Object.entries<unknown>(definitions).map(([type, given]) => [type, define(type, given)] as const);
  if (entries.length === 0) throw bad('defineEvents() was given no event types.');
  const catalogue = Object.fromEntries(entries);
  Object.defineProperty(catalogue, catalogueBrand, { value: true });
  return Object.freeze(catalogue) as unknown as EventCatalogue<Schemas>;
}

/** Refuses an option `events` that `defineEvents` has not made. */
export function requireCatalogue(given: unknown, caller: string): void {
  if (given === undefined) return;
  if (isRecord(given) && catalogueBrand in given) return;
  throw new PostcommitError('POSTCOMMIT_E_BAD_OPTION', `events of ${caller}() must be what defineEvents() returns.`);
}

/** The definition of a type; `undefined` without a catalogue, and for a type that it does not list. */
export function findDefinition(catalogue: EventCatalogue | undefined, type: string): DefinedEvent | undefined {
  return catalogue !== undefined && Object.hasOwn(catalogue, type) ? catalogue[type] : undefined;
}

/** The same, but refuses a type that the catalogue does not list. */
export function requireDefinition(catalogue: EventCatalogue | undefined, type: string): DefinedEvent | undefined {
  if (catalogue === undefined) return undefined;
  const definition = findDefinition(catalogue, type);
  if (definition !== undefined) return definition;
  const known = Object.keys(catalogue);
  const list = known.slice(0, 20).join(', ');
  throw new PostcommitError(
    'POSTCOMMIT_E_UNKNOWN_EVENT_TYPE',
    `Got ${shown(type)}.${didYouMean(type, known)} Known types: ${list}${known.length > 20 ? ', ...' : ''}.`,
  );
}

function define(type: string, given: unknown): DefinedEvent {
  const refuse = (detail: string) => bad(`${shown(type)}: ${detail}`);
  if (type === '' || Buffer.byteLength(type) > typeBytesMax || type.includes('*')) {
    throw refuse(`an event type has 1 to ${typeBytesMax} bytes and no *, which handlers use in patterns.`);
  }
  if (!isRecord(given)) throw refuse('its definition must be an object, such as { version, schema }.');
  const unknown = unknownOption(given, fieldNames);
  if (unknown !== undefined) throw refuse(unknown);
  const { version = 1, schema, upcast = {}, queue, orderingKey, description, jsonSchema } = given;
  if (!isVersion(version))
    throw refuse(`version must be a whole number from 1 to ${versionMax}. Got ${shown(version)}.`);
  if (schema !== undefined && !isStandardSchema(schema)) {
    throw refuse('schema must be a Standard Schema, version 1: that of zod 4, valibot 1 or arktype 2, for example.');
  }
  const gap = findGap(upcast, version);
  if (gap !== undefined) throw refuse(gap);
  if (queue !== undefined && !isQueueName(queue)) throw refuse(`queue must be ${queueNameRule}. Got ${shown(queue)}.`);
  if (orderingKey !== undefined && typeof orderingKey !== 'function') {
    throw refuse('orderingKey must be a function that returns the key, or null for no order.');
  }
  if (description !== undefined && typeof description !== 'string') throw refuse('description must be a text.');
  if (jsonSchema !== undefined && !isRecord(jsonSchema)) throw refuse('jsonSchema must be an object.');
  return Object.freeze({ ...given, version, upcast: Object.freeze({ ...(upcast as object) }) }) as DefinedEvent;
}

/** What is wrong with an upcast chain: it must have a function for each version before `version`, and nothing else. */
function findGap(upcast: unknown, version: number): string | undefined {
  if (!isRecord(upcast)) return 'upcast must be an object of functions by the version that they read.';
  for (let from = 1; from < version; from++) {
    if (typeof upcast[from] !== 'function') {
      return `version is ${version}, so upcast needs a function ${from}, from version ${from} to ${from + 1}. For a version that is no longer supported, give one that throws.`;
    }
  }
  const extra = Object.keys(upcast).find((from) => !(isVersion(Number(from)) && Number(from) < version));
  return extra === undefined
    ? undefined
    : `upcast has the entry ${shown(extra)}; with version ${version} it may have those from 1 to ${version - 1}.`;
}

function isVersion(value: unknown): value is number {
  return Number.isInteger(value) && (value as number) >= 1 && (value as number) <= versionMax;
}

/** Some libraries' schemas are functions with properties. */
function isStandardSchema(value: unknown): value is StandardSchemaV1 {
  if ((typeof value !== 'object' && typeof value !== 'function') || value === null) return false;
  const standard: unknown = (value as Partial<StandardSchemaV1>)['~standard'];
  return isRecord(standard) && standard.version === 1 && typeof standard.validate === 'function';
}

function isRecord(value: unknown): value is Record<PropertyKey, unknown> {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

function bad(detail: string): PostcommitError {
  return new PostcommitError('POSTCOMMIT_E_BAD_CATALOGUE', detail);
}
