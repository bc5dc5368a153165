import { Ajv2020 } from 'ajv/dist/2020.js';
import fc from 'fast-check';
import { expect, it } from 'vitest';
import { compareSchemas } from '../../src/schema/compatibility/compare-schemas.ts';
import type { SchemaObject } from '../../src/schema/compatibility/json-schema.ts';

const seed = Number(process.env.SEED ?? 20_261_116);
const names = ['a', 'b', 'c', 'kind'];
const values = ['x', 'y', 'z', 1, 2, 2.5, null, true];
const ajv = new Ajv2020({ strict: false, validateFormats: false });

const small = fc.integer({ min: 0, max: 3 });
const optional = <T>(arbitrary: fc.Arbitrary<T>) => fc.option(arbitrary, { nil: undefined });

/** JSON Schemas of every kind that the comparison knows. */
const { schema: anySchema } = fc.letrec<{ schema: SchemaObject }>((tie) => {
  const leaf = fc.oneof(
    fc.record({
      type: fc.constantFrom('string'),
      minLength: optional(small),
      maxLength: optional(small),
      pattern: optional(fc.constantFrom('^x', 'y')),
    }),
    fc.record({
      type: fc.constantFrom('number', 'integer'),
      minimum: optional(small),
      maximum: optional(small),
      exclusiveMinimum: optional(small),
      multipleOf: optional(fc.constantFrom(1, 2, 3)),
    }),
    fc.record({ enum: fc.uniqueArray(fc.constantFrom(...values), { minLength: 1, maxLength: 3 }) }),
    fc.record({ const: fc.constantFrom<unknown>(...values, ['x', 1], { a: 'x' }) }),
    fc.record({ type: fc.subarray(['string', 'null', 'boolean', 'integer', 'number'], { minLength: 1 }) }),
    fc.constant({}),
  );
  const object = fc.record({
    type: fc.constant('object'),
    properties: fc.dictionary(fc.constantFrom(...names), tie('schema'), { maxKeys: 3, noNullPrototype: true }),
    required: fc.subarray(names, { maxLength: 2 }),
    additionalProperties: optional(fc.oneof(fc.boolean(), tie('schema'))),
    propertyNames: optional(fc.constantFrom({ enum: ['a', 'b'] }, { maxLength: 1 })),
    minProperties: optional(small),
    maxProperties: optional(small),
  });
  const array = fc.record({
    type: fc.constant('array'),
    items: optional(fc.oneof(tie('schema'), fc.constant(false))),
    prefixItems: optional(fc.array(tie('schema'), { minLength: 1, maxLength: 2 })),
    minItems: optional(small),
    maxItems: optional(small),
    uniqueItems: optional(fc.boolean()),
  });
  const parts = fc.array(tie('schema'), { minLength: 1, maxLength: 3 });
  const union = fc.oneof(
    fc.record({ anyOf: parts }),
    fc.record({ oneOf: parts }),
    fc.record({ allOf: parts }),
    fc.record({ not: tie('schema') }),
  );
  return {
    schema: fc.oneof(
      { depthSize: 'small', withCrossShrink: true },
      leaf,
      leaf,
      object,
      object,
      array,
      union,
    ) as fc.Arbitrary<SchemaObject>,
  };
});

/** Replaces one part of a schema, or adds or removes a keyword. */
const edited = fc.tuple(anySchema, anySchema, fc.infiniteStream(fc.nat(999))).map(([before, other, stream]) => {
  const after = structuredClone(plain(before)) as Record<string, unknown>;
  const next = (count: number) => (stream.next().value as number) % count;
  let place = after;
  for (let depth = 0; depth < 4 && next(3) > 0; depth++) {
    const children = Object.entries(place).flatMap(schemasIn);
    if (children.length === 0) break;
    place = children[next(children.length)] as Record<string, unknown>;
  }
  const keywords = Object.keys(place);
  if (keywords.length > 0 && next(2) === 0) delete place[keywords[next(keywords.length)] as string];
  else if (next(3) === 0) Object.assign(place, plain(other));
  else if (Array.isArray(place.enum)) place.enum = [...place.enum, values[next(values.length)]];
  else if (Array.isArray(place.required)) place.required = place.required.slice(1);
  else {
    const union = { anyOf: [structuredClone(place), plain(other)] };
    for (const keyword of keywords) delete place[keyword];
    Object.assign(place, union);
  }
  return { before: plain(before) as SchemaObject, after: after as SchemaObject };
});

function plain(value: unknown): object {
  return JSON.parse(JSON.stringify(value)) as object;
}

function schemasIn([keyword, value]: [string, unknown]): object[] {
  if (typeof value !== 'object' || value === null || keyword === 'const' || keyword === 'enum') return [];
  const list = Array.isArray(value) || keyword === 'properties' ? Object.values(value) : [value];
  return list.filter((each) => typeof each === 'object' && each !== null);
}

/** A value that the schema probably accepts, with the fields and items that it declares and no others. */
function sample(schema: unknown, next: (count: number) => number): unknown {
  if (typeof schema !== 'object' || schema === null) return values[next(values.length)];
  const { const: only, enum: listed, anyOf, oneOf, allOf, type, ...rest } = schema as Record<string, never>;
  if ('const' in schema) return only;
  if (Array.isArray(listed)) return listed[next((listed as unknown[]).length)];
  const union = (anyOf ?? oneOf) as unknown[] | undefined;
  if (union) return sample(union[next(union.length)], next);
  if (allOf) {
    const parts = (allOf as unknown[]).map((part) => sample(part, next));
    const isObject = (part: unknown) => typeof part === 'object' && part !== null && !Array.isArray(part);
    return parts.every(isObject) ? Object.assign({}, ...(parts as object[])) : parts[next(parts.length)];
  }
  const types = type === undefined ? ['string', 'number', 'null', 'boolean', 'object', 'array'] : [type].flat();
  const chosen = types[next(types.length)];
  if (chosen === 'string') return ['', 'x', 'y', 'xy', 'xyz', 'yyyy'][next(6)];
  if (chosen === 'integer') return next(8) - 1;
  if (chosen === 'number') return [0, 1, 2, 3, 2.5, -1, 1.5, 6][next(8)];
  if (chosen === 'boolean') return next(2) === 0;
  if (chosen === 'null') return null;
  if (chosen === 'array') return sampleList(rest, next);
  return sampleObject(rest, next);
}

function sampleList(
  { items, prefixItems = [] }: { items?: unknown; prefixItems?: unknown[] },
  next: (count: number) => number,
) {
  // Beyond a tuple, a writer writes only what `items` declares.
  const isFixed = prefixItems.length > 0 && (items === undefined || items === false);
  const length = isFixed ? next(prefixItems.length + 1) : next(4);
  return Array.from({ length }, (_, at) => sample(prefixItems[at] ?? items, next));
}

function sampleObject(schema: Record<string, unknown>, next: (count: number) => number) {
  const properties = (schema.properties ?? {}) as Record<string, unknown>;
  const required = (schema.required ?? []) as string[];
  const value: Record<string, unknown> = {};
  for (const [name, each] of Object.entries(properties)) {
    if (required.includes(name) || next(2) === 0) value[name] = sample(each, next);
  }
  const { additionalProperties: others } = schema;
  for (const name of required) if (!(name in value)) value[name] = sample(others, next);
  if (others !== undefined && others !== false) {
    for (const name of [...names, 'other']) if (!(name in value) && next(3) === 0) value[name] = sample(others, next);
  }
  return value;
}

// It computes all the time: on cores that other tests use as well it takes longer than most.
it('accepts no change under which a reader refuses what a writer may write', { timeout: 240_000 }, () => {
  const seen = { compatible: 0, breaking: 0, samples: 0 };
  fc.assert(
    fc.property(edited, fc.infiniteStream(fc.nat(9_999)), ({ before, after }, stream) => {
      const next = (count: number) => (stream.next().value as number) % count;
      if (compareSchemas(before, after, 'backward').length > 0) {
        seen.breaking++;
        return;
      }
      seen.compatible++;
      const [writer, reader] = [ajv.compile(before), ajv.compile(after)];
      for (let at = 0; at < 30; at++) {
        const value = sample(before, next);
        if (!writer(value)) continue;
        seen.samples++;
        expect(reader(value), JSON.stringify({ before, after, value })).toBe(true);
      }
    }),
    { seed, numRuns: 3_000 },
  );
  // Otherwise the test shows little.
  expect(seen.compatible).toBeGreaterThan(500);
  expect(seen.breaking).toBeGreaterThan(500);
  expect(seen.samples).toBeGreaterThan(5_000);
});
