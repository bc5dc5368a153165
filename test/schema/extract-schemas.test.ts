import { describe, expect, it } from 'vitest';
import { z } from 'zod';
import { defineEvents } from '../../src/catalogue/catalogue.ts';
import { extractSchemas } from '../../src/schema/extract-schemas.ts';
import { parseSchemaFile, renderSchemaFile } from '../../src/schema/schema-file.ts';

function schemaOf(schema: unknown, more = {}) {
  return extractSchemas(defineEvents({ made: { schema, ...more } } as never)).events.made?.schema;
}

describe('extractSchemas', () => {
  it('takes the input of a schema of zod, which is what emit writes', () => {
    const schema = z.object({ at: z.string().transform((text) => new Date(text)), n: z.number().default(1) });
    expect(schemaOf(schema)).toEqual({
      type: 'object',
      properties: { at: { type: 'string' }, n: { type: 'number', default: 1 } },
      required: ['at'],
    });
  });

  it('prefers jsonSchema, and accepts any payload without a schema', () => {
    expect(schemaOf(z.date(), { jsonSchema: { type: 'string' } })).toEqual({ type: 'string' });
    expect(schemaOf(undefined)).toBe(true);
  });

  it.each([
    ['a date', z.object({ order: z.object({ at: z.date() }) }), 'made: Field order.at: Date cannot be represented'],
    ['an item', z.object({ list: z.array(z.object({ f: z.bigint() })) }), 'made: Field list[].f: BigInt'],
    ['a custom check', z.object({ f: z.custom(() => true).optional() }), 'made: Field f: '],
  ])('refuses %s with type and path', (_what, schema, message) => {
    expect(() => schemaOf(schema)).toThrow(
      expect.objectContaining({ code: 'POSTCOMMIT_E_NO_JSON_SCHEMA', detail: expect.stringContaining(message) }),
    );
  });

  it('tells how a library without JSON Schema gets one', () => {
    const schema = (vendor: string) => ({
      '~standard': { version: 1, vendor, validate: (value: unknown) => ({ value }) },
    });
    expect(() => schemaOf(schema('valibot'))).toThrow('toStandardJsonSchema(schema), from @valibot/to-json-schema');
    expect(() => schemaOf(schema('mine'))).toThrow('add `jsonSchema`');
  });
});

describe('the schema file', () => {
  it('is the same text whatever the order in the code', () => {
    const file = (schema: object) =>
      renderSchemaFile({ events: { b: { version: 1, schema: true }, a: { version: 2, schema } } as never });
    const text = file({ required: ['y', 'x'], properties: { y: {}, required: {}, x: {} }, type: 'object' });
    expect(text).toBe(file({ type: 'object', properties: { x: {}, y: {}, required: {} }, required: ['x', 'y'] }));
    expect(text.endsWith('}\n')).toBe(true);
    expect(Object.keys(parseSchemaFile(text, 'file').events)).toEqual(['a', 'b']);
  });

  it.each(['<<<<<<<', '[]', '{"postcommit":2,"events":{}}', '{"postcommit":1,"events":{"a":{}}}'])(
    'refuses %s',
    (text) => {
      expect(() => parseSchemaFile(text, 'x.json')).toThrow(
        expect.objectContaining({ code: 'POSTCOMMIT_E_BAD_SCHEMA_FILE' }),
      );
    },
  );
});
