import { merge, valuesOf } from './intersection.ts';
import type { JsonSchema, SchemaObject } from './json-schema.ts';
import { asSchema, assertions, deepEqual, isObject, NotComparable, target } from './json-schema.ts';

/** The types of JSON values. `integer` is a part of `number`. */
export const jsonTypes = ['null', 'boolean', 'number', 'string', 'array', 'object'] as const;

/** A union of more parts is not compared: unions within unions multiply. */
const alternativesMax = 1_000;
const depthMax = 100;

/**
 * A schema as a list of simple ones, of which every valid value matches at least one: each has one `type` or is one value
 * (`const`), and has no references, unions or `allOf`. The list may match more values than the schema does, never fewer.
 */
export function alternatives(schema: JsonSchema, root: JsonSchema): SchemaObject[] {
  return expand(schema, root, 0).flatMap(byType);
}

function expand(schema: JsonSchema, root: JsonSchema, depth: number): SchemaObject[] {
  if (depth > depthMax) throw new NotComparable('a reference or a union contains itself');
  if (schema === false) return [];
  if (schema === true) return [{}];
  const plain: Record<string, unknown> = {};
  let list: SchemaObject[] = [{}];
  for (const [keyword, value] of assertions(schema)) {
    if (keyword === '$ref') list = product(list, expand(target(String(value), root), root, depth + 1));
    else if (keyword === 'allOf') {
      for (const part of listOf(value)) list = product(list, expand(asSchema(part), root, depth + 1));
    } else if (keyword === 'anyOf' || keyword === 'oneOf') {
      const parts = listOf(value).flatMap((part) => expand(asSchema(part), root, depth + 1));
      list = product(list, parts);
    } else if (keyword === 'not' && (value === true || (isObject(value) && assertions(value).length === 0))) return [];
    else plain[keyword] = value;
  }
  return product(list, [plain]);
}

function listOf(value: unknown): readonly unknown[] {
  return Array.isArray(value) ? value : [];
}

function product(one: readonly SchemaObject[], other: readonly SchemaObject[]): SchemaObject[] {
  if (one.length * other.length > alternativesMax) throw new NotComparable('it has too many alternatives');
  return one.flatMap((a) => other.map((b) => merge(a, b)).filter((merged) => merged !== undefined));
}

function byType(schema: SchemaObject): SchemaObject[] {
  const types = schema.type === undefined ? jsonTypes : ([schema.type].flat() as string[]);
  const values = valuesOf(schema);
  if (values !== undefined) return values.filter((value) => isOfTypes(value, types)).map(ofValue);
  return types.flatMap((type): SchemaObject[] =>
    type === 'boolean'
      ? [{ const: true }, { const: false }]
      : type === 'null'
        ? [{ const: null }]
        : [{ ...schema, type }],
  );
}

export function isOfTypes(value: unknown, types: readonly string[]): boolean {
  return types.includes(typeOf(value)) || (types.includes('integer') && Number.isInteger(value));
}

export function typeOf(value: unknown): string {
  return value === null ? 'null' : Array.isArray(value) ? 'array' : typeof value;
}

/** Lists and objects by their structure, so that they are compared like schemas. */
function ofValue(value: unknown): SchemaObject {
  if (Array.isArray(value)) {
    const length = { minItems: value.length, maxItems: value.length };
    return { type: 'array', prefixItems: value.map((each) => ({ const: each })), items: false, ...length };
  }
  if (isObject(value)) {
    const properties = Object.fromEntries(Object.entries(value).map(([name, each]) => [name, { const: each }]));
    return { type: 'object', properties, required: Object.keys(value), additionalProperties: false };
  }
  return { const: value };
}

/** Whether no value is valid under both. `false` also means that it is not known. */
export function areDisjoint(
  schema: JsonSchema,
  root: JsonSchema,
  written: JsonSchema,
  writtenRoot: JsonSchema,
  depth = 0,
): boolean {
  if (depth > 5) return false;
  return alternatives(schema, root).every((a) =>
    alternatives(written, writtenRoot).every((b) => {
      if (!mayShareType(a, b)) return true;
      if ('const' in a && 'const' in b) return !deepEqual(a.const, b.const);
      if (a.type !== 'object' || b.type !== 'object') return false;
      const names = new Set([...listOf(a.required), ...listOf(b.required)] as string[]);
      return [...names].some((name) =>
        areDisjoint(propertyOf(a, name, true), root, propertyOf(b, name, false), writtenRoot, depth + 1),
      );
    }),
  );
}

function propertyOf(schema: SchemaObject, name: string, otherwise: boolean): JsonSchema {
  const { properties, additionalProperties, patternProperties } = schema;
  if (isObject(properties) && Object.hasOwn(properties, name)) return asSchema(properties[name]);
  if (patternProperties !== undefined) return true;
  return asSchema(additionalProperties ?? otherwise);
}

function mayShareType(a: SchemaObject, b: SchemaObject): boolean {
  const of = (schema: SchemaObject) => ('const' in schema ? typeOf(schema.const) : schema.type);
  const whole = (type: unknown) => (type === 'integer' ? 'number' : type);
  return whole(of(a)) === whole(of(b));
}
