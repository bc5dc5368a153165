import type { JsonSchema } from './compatibility/json-schema.ts';
import { isObject } from './compatibility/json-schema.ts';

const maps = new Set(['properties', 'patternProperties', 'dependentSchemas', '$defs', 'definitions']);
const values = new Set(['const', 'enum', 'default', 'examples', 'required']);

/**
 * A schema in the words of draft 7, which is what registries compare: Confluent's takes every schema that names no draft for one, and
 * Apicurio refuses to compare later drafts. What draft 7 has no word for stays, and registries ignore it.
 */
export function toDraft7(schema: JsonSchema): object {
  const converted = convert(schema, false);
  // A registry takes objects only.
  const root = isObject(converted) ? converted : converted === false ? { not: {} } : {};
  return { $schema: 'http://json-schema.org/draft-07/schema#', ...root };
}

function convert(schema: unknown, isMap: boolean): unknown {
  if (Array.isArray(schema)) return schema.map((part) => convert(part, false));
  if (!isObject(schema)) return schema;
  const entries = Object.entries(schema).map(([name, part]) => [
    name,
    !isMap && values.has(name) ? part : convert(part, !isMap && maps.has(name)),
  ]);
  const result = Object.fromEntries(entries) as Record<string, unknown>;
  return isMap ? result : withReference(withTuple(result));
}

function withTuple({ prefixItems, items, ...rest }: Record<string, unknown>): Record<string, unknown> {
  if (!Array.isArray(prefixItems)) return items === undefined ? rest : { ...rest, items };
  return { ...rest, items: prefixItems, ...(items !== undefined && { additionalItems: items }) };
}

/** Draft 7 ignores what is beside a reference. */
function withReference({ $ref, ...rest }: Record<string, unknown>): Record<string, unknown> {
  if (typeof $ref !== 'string') return rest;
  const { $defs, definitions, ...beside } = rest;
  if (Object.keys(beside).length === 0) return { $ref, ...rest };
  const others = Array.isArray(beside.allOf) ? beside.allOf : [];
  return { ...rest, allOf: [{ $ref }, ...others] };
}
