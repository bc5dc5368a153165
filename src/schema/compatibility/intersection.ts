import type { JsonSchema, SchemaObject } from './json-schema.ts';
import { asSchema, deepEqual, isObject } from './json-schema.ts';

const largest = new Set(['minimum', 'exclusiveMinimum', 'minLength', 'minItems', 'minProperties']);
const smallest = new Set(['maximum', 'exclusiveMaximum', 'maxLength', 'maxItems', 'maxProperties']);

/**
 * One schema for the values that are valid under both, neither of which has references or unions at its top. It may allow more
 * values than both do, never fewer. `undefined`: there are none. `pattern` and `format` of both become a list.
 */
export function merge(a: SchemaObject, b: SchemaObject): SchemaObject | undefined {
  if (Object.keys(a).length === 0) return b;
  if (Object.keys(b).length === 0) return a;
  const merged: Record<string, unknown> = { ...b, ...a };
  const types = commonTypes(a.type, b.type);
  if (types?.length === 0) return undefined;
  if (types !== undefined) merged.type = types;
  const values = commonValues(valuesOf(a), valuesOf(b));
  if (values?.length === 0) return undefined;
  if (values !== undefined) {
    delete merged.const;
    merged.enum = values;
  }
  for (const keyword of Object.keys(b)) {
    const [one, other] = [a[keyword], b[keyword]];
    if (one === undefined) continue;
    if (largest.has(keyword)) merged[keyword] = Math.max(Number(one), Number(other));
    else if (smallest.has(keyword)) merged[keyword] = Math.min(Number(one), Number(other));
    else if (keyword === 'pattern' || keyword === 'format') merged[keyword] = [...new Set([one, other].flat())];
    else if (keyword === 'required') merged[keyword] = [...new Set([one, other].flat())];
    else if (keyword === 'uniqueItems') merged[keyword] = one === true || other === true;
    else if (keyword === 'propertyNames') merged[keyword] = both(one, other);
    else if (keyword === 'additionalProperties') merged[keyword] = both(one, other);
    else if (keyword === 'patternProperties') merged[keyword] = { ...(other as object), ...(one as object) };
  }
  if (isObject(a.properties) || isObject(b.properties)) merged.properties = mergedProperties(a, b);
  if (a.prefixItems !== undefined || b.prefixItems !== undefined || (a.items !== undefined && b.items !== undefined)) {
    Object.assign(merged, mergedItems(a, b));
  }
  return merged;
}

function commonTypes(one: unknown, other: unknown): string[] | undefined {
  if (one === undefined && other === undefined) return undefined;
  if (one === undefined || other === undefined) return [one ?? other].flat() as string[];
  const [a, b] = [[one].flat() as string[], [other].flat() as string[]];
  const common = a.filter((type) => b.includes(type));
  const hasWhole = (list: string[], rest: string[]) => list.includes('integer') && rest.includes('number');
  if (!common.includes('number') && (hasWhole(a, b) || hasWhole(b, a))) common.push('integer');
  return [...new Set(common)];
}

/** The values that a schema lists; `undefined` if it lists none. */
export function valuesOf(schema: SchemaObject): unknown[] | undefined {
  const listed = Array.isArray(schema.enum) ? schema.enum : undefined;
  return commonValues('const' in schema ? [schema.const] : undefined, listed);
}

function commonValues(one: unknown[] | undefined, other: unknown[] | undefined): unknown[] | undefined {
  if (one === undefined || other === undefined) return one ?? other;
  return one.filter((value) => other.some((each) => deepEqual(each, value)));
}

function both(one: unknown, other: unknown): JsonSchema {
  if (one === false || other === false) return false;
  if (one === true || one === undefined) return asSchema(other ?? true);
  if (other === true || other === undefined) return asSchema(one);
  return { allOf: [one, other] };
}

function mergedProperties(a: SchemaObject, b: SchemaObject): SchemaObject {
  const own = (schema: SchemaObject) => (isObject(schema.properties) ? schema.properties : {});
  const names = [...Object.keys(own(a)), ...Object.keys(own(b))];
  // Where a schema does not name a property, its additionalProperties apply, unless a pattern may match.
  const of = (schema: SchemaObject, name: string) => {
    if (Object.hasOwn(own(schema), name)) return own(schema)[name];
    return schema.patternProperties === undefined ? schema.additionalProperties : undefined;
  };
  return Object.fromEntries(names.map((name) => [name, both(of(a, name), of(b, name))]));
}

function mergedItems(a: SchemaObject, b: SchemaObject): { prefixItems?: JsonSchema[]; items?: JsonSchema } {
  const [one, other] = [itemsOf(a), itemsOf(b)];
  const length = Math.max(one.first.length, other.first.length);
  const first = Array.from({ length }, (_, at) => both(one.first[at] ?? one.rest, other.first[at] ?? other.rest));
  const items = one.rest === undefined && other.rest === undefined ? undefined : both(one.rest, other.rest);
  return { ...(length > 0 && { prefixItems: first }), ...(items !== undefined && { items }) };
}

/** The schemas of a list: of its first items, and of all others, where it has one. */
export function itemsOf({ prefixItems, items, additionalItems }: SchemaObject): {
  first: readonly JsonSchema[];
  rest: JsonSchema | undefined;
} {
  const optional = (value: unknown) => (value === undefined ? undefined : asSchema(value));
  if (Array.isArray(items)) return { first: items.map(asSchema), rest: optional(additionalItems) };
  return { first: Array.isArray(prefixItems) ? prefixItems.map(asSchema) : [], rest: optional(items) };
}
