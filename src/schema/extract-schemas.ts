import type { DefinedEvent, EventCatalogue } from '../catalogue/catalogue.ts';
import { PostcommitError } from '../errors.ts';
import type { JsonSchema } from './compatibility/json-schema.ts';
import { isObject } from './compatibility/json-schema.ts';
import type { RecordedEvent, SchemaFile } from './schema-file.ts';

/**
 * The JSON Schema of every event type: that of the definition, or else what the schema library makes of it. It describes the
 * payload as it is written, so it is the schema's input: `emit` writes a payload as it was given.
 */
export function extractSchemas(events: EventCatalogue): SchemaFile {
  return {
    events: Object.fromEntries(Object.entries<DefinedEvent>(events).map(([type, each]) => [type, extract(type, each)])),
  };
}

function extract(type: string, { version, description, schema, jsonSchema }: DefinedEvent): RecordedEvent {
  const found = jsonSchema ?? (schema === undefined ? true : convert(type, schema));
  return { version, ...(description !== undefined && { description }), schema: asJson(type, found) };
}

/** What Standard JSON Schema adds to a schema: zod 4.2 and arktype 2.1.28 have it, valibot with `toStandardJsonSchema`. */
interface JsonSchemaConverter {
  input(options: { target: 'draft-2020-12' }): unknown;
}

function convert(type: string, schema: unknown): unknown {
  const standard = (schema as { '~standard'?: { vendor?: string; jsonSchema?: JsonSchemaConverter } })['~standard'];
  const converter = standard?.jsonSchema;
  if (typeof converter?.input !== 'function') {
    const hint =
      standard?.vendor === 'valibot'
        ? 'Wrap it: schema: toStandardJsonSchema(schema), from @valibot/to-json-schema'
        : 'Use a version of the library that implements Standard JSON Schema (zod 4.2, arktype 2.1.28)';
    throw refuse(type, `The schema (${standard?.vendor ?? 'of an unknown library'}) has no JSON Schema. ${hint}`);
  }
  try {
    return converter.input({ target: 'draft-2020-12' });
  } catch (cause) {
    const at = pathOfCulprit(schema);
    const what = cause instanceof Error ? cause.message.split('\n')[0] : String(cause);
    throw refuse(type, `${at === undefined ? '' : `Field ${at}: `}${what?.replace(/\.$/, '')}`, cause);
  }
}

function refuse(type: string, detail: string, cause?: unknown): PostcommitError {
  return new PostcommitError('POSTCOMMIT_E_NO_JSON_SCHEMA', `${type}: ${detail}.`, { cause });
}

/**
 * The path of the field that a library cannot convert. Libraries name the problem and not the place, so this asks the schemas of
 * fields and items one by one, as zod has them (`shape`, `element`, ...) and arktype (`props`).
 */
function pathOfCulprit(schema: unknown, depth = 0): string | undefined {
  if (depth > 20) return undefined;
  for (const [name, part] of partsOf(schema)) {
    const converter = (part as { '~standard'?: { jsonSchema?: JsonSchemaConverter } } | null)?.['~standard']
      ?.jsonSchema;
    if (converter === undefined) continue;
    try {
      converter.input({ target: 'draft-2020-12' });
    } catch {
      const within = pathOfCulprit(part, depth + 1);
      if (within === undefined) return name || undefined;
      return name === '' ? within : within.startsWith('[') ? name + within : `${name}.${within}`;
    }
  }
  return undefined;
}

function partsOf(schema: unknown): [name: string, part: unknown][] {
  const { shape, element, def, props } = schema as Record<string, unknown>;
  if (Array.isArray(props)) return props.map(({ key, value }) => [String(key), value]);
  if (isObject(shape)) return Object.entries(shape);
  if (element !== undefined) return [['[]', element]];
  if (!isObject(def)) return [];
  const { innerType, options, in: input, valueType, items } = def;
  if (valueType !== undefined) return [['*', valueType]];
  if (Array.isArray(items)) return items.map((item, at) => [`[${at}]`, item]);
  return [innerType, input, ...(Array.isArray(options) ? options : [])].filter(Boolean).map((part) => ['', part]);
}

/** A copy without what JSON cannot hold: functions, hidden properties, dates. */
function asJson(type: string, schema: unknown): JsonSchema {
  if (typeof schema === 'boolean') return schema;
  if (!isObject(schema)) throw refuse(type, 'jsonSchema must be an object');
  try {
    const { $schema: _, ...rest } = JSON.parse(JSON.stringify(schema)) as Record<string, unknown>;
    return rest;
  } catch (cause) {
    throw refuse(type, 'jsonSchema cannot be written as JSON', cause);
  }
}
