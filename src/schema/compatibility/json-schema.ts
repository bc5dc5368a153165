/** A JSON Schema: draft 2020-12, or the parts of draft 7 that differ from it (`definitions`, a list of `items`). */
export type JsonSchema = boolean | SchemaObject;

export interface SchemaObject {
  readonly [keyword: string]: unknown;
}

/** A schema cannot be compared. The message says why; the check reports it at the path in question. */
export class NotComparable extends Error {
  override readonly name = 'NotComparable';
}

/** Keywords that say nothing about which values are valid. */
const annotations = new Set(
  '$schema $id id $anchor $comment $defs definitions title description examples default deprecated readOnly writeOnly contentEncoding contentMediaType contentSchema'.split(
    ' ',
  ),
);

/** Keywords that have a meaning for validation and are compared only as a whole: they must be the same on both sides. */
export const opaqueKeywords: Readonly<Record<string, 'object' | 'array' | 'any'>> = {
  not: 'any',
  if: 'any',
  // biome-ignore lint/suspicious/noThenProperty: a keyword of JSON Schema.
  then: 'any',
  else: 'any',
  $dynamicRef: 'any',
  $recursiveRef: 'any',
  contains: 'array',
  minContains: 'array',
  maxContains: 'array',
  unevaluatedItems: 'array',
  dependencies: 'object',
  dependentRequired: 'object',
  dependentSchemas: 'object',
  unevaluatedProperties: 'object',
};

const schemaMaps = new Set(['properties', 'patternProperties', 'dependentSchemas']);
const schemaLists = new Set(['allOf', 'anyOf', 'oneOf', 'prefixItems']);
const unorderedLists = new Set(['type', 'enum', 'required']);
const plainValues = new Set(['const', 'dependentRequired']);
/** References to references at most. */
const hopsMax = 100;

export function isObject(value: unknown): value is SchemaObject {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

export function asSchema(value: unknown): JsonSchema {
  if (typeof value === 'boolean' || isObject(value)) return value;
  throw new NotComparable(`${JSON.stringify(value)} is not a JSON Schema`);
}

/** The keywords that decide which values are valid. */
export function assertions(schema: SchemaObject): [keyword: string, value: unknown][] {
  return Object.entries(schema).filter(
    ([keyword, value]) => value !== undefined && !annotations.has(keyword) && !keyword.startsWith('x-'),
  );
}

/** Follows references that stand alone, so that a schema is one object however it is reached. */
export function dereference(schema: JsonSchema, root: JsonSchema): JsonSchema {
  let current = schema;
  for (let hops = 0; isObject(current) && typeof current.$ref === 'string'; hops++) {
    if (assertions(current).length > 1) return current;
    if (hops > hopsMax) throw new NotComparable(`the reference ${current.$ref} leads to itself`);
    current = target(current.$ref, root);
  }
  return current;
}

/** What a reference points to. Only references within the schema are supported. */
export function target(reference: string, root: JsonSchema): JsonSchema {
  if (!/^#(\/|$)/.test(reference)) {
    throw new NotComparable(`the reference ${reference} does not point into the schema itself, as #/$defs/name does`);
  }
  let current: unknown = root;
  for (const part of reference.split('/').slice(1)) {
    const key = decodeURIComponent(part).replaceAll('~1', '/').replaceAll('~0', '~');
    const holder: unknown = current;
    current =
      typeof holder === 'object' && holder !== null && Object.hasOwn(holder, key)
        ? (holder as SchemaObject)[key]
        : undefined;
  }
  if (current === undefined) throw new NotComparable(`the reference ${reference} points to nothing`);
  return asSchema(current);
}

/** Whether two schemas mean the same: annotations, the order of lists and the names of definitions do not count. */
export function isSame(a: JsonSchema, rootA: JsonSchema, b: JsonSchema, rootB: JsonSchema): boolean {
  const underWay = new Map<unknown, Set<unknown>>();

  function schemas(first: unknown, second: unknown): boolean {
    const one = isObject(first) ? dereference(first, rootA) : first;
    const other = isObject(second) ? dereference(second, rootB) : second;
    if (!isObject(one) || !isObject(other)) return deepEqual(one, other);
    const seen = underWay.get(one) ?? new Set();
    if (seen.has(other)) return true;
    underWay.set(one, seen.add(other));
    const [left, right] = [new Map(assertions(one)), new Map(assertions(other))];
    if (left.size !== right.size) return false;
    return [...left].every(([keyword, value]) => right.has(keyword) && values(keyword, value, right.get(keyword)));
  }

  function values(keyword: string, one: unknown, other: unknown): boolean {
    if (plainValues.has(keyword)) return deepEqual(one, other);
    if (keyword === '$ref') return schemas(target(String(one), rootA), target(String(other), rootB));
    if (unorderedLists.has(keyword)) return sameMembers([one].flat(), [other].flat());
    if (schemaMaps.has(keyword) && isObject(one) && isObject(other)) {
      const names = Object.keys(one);
      return (
        names.length === Object.keys(other).length &&
        names.every((name) => Object.hasOwn(other, name) && schemas(one[name], other[name]))
      );
    }
    if ((schemaLists.has(keyword) || Array.isArray(one)) && Array.isArray(one) && Array.isArray(other)) {
      return one.length === other.length && one.every((each, index) => schemas(each, other[index]));
    }
    return schemas(one, other);
  }

  return schemas(a, b);
}

function sameMembers(one: readonly unknown[], other: readonly unknown[]): boolean {
  const contains = (list: readonly unknown[], value: unknown) => list.some((each) => deepEqual(each, value));
  return one.every((value) => contains(other, value)) && other.every((value) => contains(one, value));
}

/** Equality of JSON values. */
export function deepEqual(one: unknown, other: unknown): boolean {
  if (one === other) return true;
  if (Array.isArray(one) || Array.isArray(other)) {
    if (!Array.isArray(one) || !Array.isArray(other) || one.length !== other.length) return false;
    return one.every((value, index) => deepEqual(value, other[index]));
  }
  if (!isObject(one) || !isObject(other)) return false;
  const names = Object.keys(one);
  return (
    names.length === Object.keys(other).length &&
    names.every((name) => Object.hasOwn(other, name) && deepEqual(one[name], other[name]))
  );
}

/** Whether a text matches a pattern, as JSON Schema reads it: anywhere in the text. */
export function matches(pattern: string, text: string): boolean {
  try {
    return new RegExp(pattern, 'u').test(text);
  } catch (cause) {
    throw new NotComparable(`${JSON.stringify(pattern)} is not a regular expression`, { cause });
  }
}
