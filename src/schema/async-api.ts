import type { JsonSchema } from './compatibility/json-schema.ts';
import { isObject } from './compatibility/json-schema.ts';
import type { RecordedEvent, SchemaFile } from './schema-file.ts';

/** The service whose events a document describes. */
export interface DocumentedService {
  readonly title: string;
  readonly version: string;
}

const schemaFormat = 'application/schema+json;version=draft-2020-12';

/**
 * An AsyncAPI 3.0 document: a channel, a message and a `send` operation per event type. Which topic or queue an event goes to is
 * decided by the routes of a relay, so channels have the event type for an address.
 */
export function renderAsyncApi({ events }: SchemaFile, service: DocumentedService): object {
  const keys = documentKeys(Object.keys(events).sort());
  const each = <T>(make: (type: string, key: string, event: RecordedEvent) => T): Record<string, T> =>
    Object.fromEntries([...keys].map(([type, key]) => [key, make(type, key, events[type] as RecordedEvent)]));
  return {
    asyncapi: '3.0.0',
    info: { title: service.title, version: service.version },
    defaultContentType: 'application/json',
    channels: each((type, key) => ({
      address: type,
      messages: { [key]: { $ref: `#/components/messages/${key}` } },
    })),
    operations: each((_type, key) => ({
      action: 'send',
      channel: { $ref: `#/channels/${key}` },
      messages: [{ $ref: `#/channels/${key}/messages/${key}` }],
    })),
    components: {
      messages: each((type, key, { version, description }) => ({
        name: type,
        title: `${type}, version ${version}`,
        ...(description !== undefined && { description }),
        payload: { $ref: `#/components/schemas/${key}` },
      })),
      schemas: each((_type, key, { schema }) => ({ schemaFormat, schema: moved(schema, key) })),
    },
  };
}

/** Keys of an AsyncAPI document are letters, digits, `.`, `-` and `_`. Each event type gets one of its own. */
export function documentKeys(types: readonly string[]): ReadonlyMap<string, string> {
  const taken = new Set<string>();
  const keys = new Map<string, string>();
  for (const type of types) {
    const base = type.replace(/[^A-Za-z0-9._-]/g, '_');
    let key = base;
    // Names of files too, which some systems compare without regard to case.
    for (let count = 2; taken.has(key.toLowerCase()); count++) key = `${base}_${count}`;
    taken.add(key.toLowerCase());
    keys.set(type, key);
  }
  return keys;
}

/** References point into the document, and so into the place that the schema has there. */
function moved(schema: JsonSchema, key: string): unknown {
  const move = (value: unknown, isMap: boolean): unknown => {
    if (Array.isArray(value)) return value.map((part) => move(part, false));
    if (!isObject(value)) return value;
    return Object.fromEntries(
      Object.entries(value).map(([name, part]) => {
        if (isMap) return [name, move(part, false)];
        if (name === '$ref' && typeof part === 'string' && part.startsWith('#')) {
          return [name, `#/components/schemas/${key}/schema${part.slice(1)}`];
        }
        const isValue = name === 'const' || name === 'enum' || name === 'default' || name === 'examples';
        return [name, isValue ? part : move(part, schemaMaps.has(name))];
      }),
    );
  };
  return move(schema, false);
}

const schemaMaps = new Set(['properties', 'patternProperties', 'dependentSchemas', '$defs', 'definitions']);
