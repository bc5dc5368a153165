import { PostcommitError } from '../errors.ts';
import type { JsonSchema } from './compatibility/json-schema.ts';
import { isObject } from './compatibility/json-schema.ts';

/** The name of the file that `postcommit schema check` compares with. */
export const schemaFileName = 'postcommit.schema.json';

/** The event types of a service, as `postcommit.schema.json` keeps them. */
export interface SchemaFile {
  readonly events: Readonly<Record<string, RecordedEvent>>;
}

export interface RecordedEvent {
  readonly version: number;
  readonly description?: string;
  /** The JSON Schema of the payload. `true`: any payload. */
  readonly schema: JsonSchema;
}

const format = 1;
/** Keywords in the order in which people read a schema; all others follow by name. */
const first = ['$schema', '$ref', 'title', 'description', 'type', 'const', 'enum', 'properties', 'required'];
const last = ['$defs', 'definitions'];

/** The text of the file: types and fields by name, a line each, so that a change is a small diff. */
export function renderSchemaFile({ events }: SchemaFile): string {
  const types = Object.keys(events).sort();
  const sorted = types.map((type) => {
    const { version, description, schema } = events[type] as RecordedEvent;
    return [type, { version, ...(description !== undefined && { description }), schema: ordered(schema) }];
  });
  return `${JSON.stringify({ postcommit: format, events: Object.fromEntries(sorted) }, null, 2)}\n`;
}

/** A schema with its keywords in a fixed order. The order of fields is lost: libraries keep that of the code. */
function ordered(schema: unknown, isMap = false): unknown {
  if (Array.isArray(schema)) return schema.map((each) => ordered(each));
  if (!isObject(schema)) return schema;
  const rank = (name: string) => {
    if (isMap) return 0;
    return first.includes(name) ? first.indexOf(name) - first.length : last.includes(name) ? 1 : 0;
  };
  const names = Object.keys(schema).sort((a, b) => rank(a) - rank(b) || (a < b ? -1 : 1));
  const isPlain = (name: string) =>
    !isMap && (name === 'const' || name === 'enum' || name === 'default' || name === 'examples');
  const mapNames = ['properties', 'patternProperties', 'dependentSchemas', '$defs', 'definitions'];
  return Object.fromEntries(
    names.map((name) => {
      if (isPlain(name)) return [name, schema[name]];
      if (!isMap && name === 'required' && Array.isArray(schema[name])) return [name, [...schema[name]].sort()];
      return [name, ordered(schema[name], !isMap && mapNames.includes(name))];
    }),
  );
}

/** Reads the text of the file. `name`: for the error. */
export function parseSchemaFile(text: string, name: string): SchemaFile {
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch (cause) {
    throw bad(name, `It is not JSON: ${(cause as Error).message}.`, cause);
  }
  if (!isObject(value) || !isObject(value.events)) throw bad(name, 'It must be an object with `events`.');
  if (value.postcommit !== format) {
    throw bad(
      name,
      `Its format is ${JSON.stringify(value.postcommit)}, and this version of postcommit reads format ${format}.`,
    );
  }
  for (const [type, event] of Object.entries(value.events)) {
    const isValid =
      isObject(event) &&
      Number.isInteger(event.version) &&
      (isObject(event.schema) || typeof event.schema === 'boolean');
    if (!isValid) throw bad(name, `${JSON.stringify(type)} must have a version and a schema.`);
  }
  return value as unknown as SchemaFile;
}

function bad(name: string, detail: string, cause?: unknown): PostcommitError {
  return new PostcommitError('POSTCOMMIT_E_BAD_SCHEMA_FILE', `${name}: ${detail}`, { cause });
}
