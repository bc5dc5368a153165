import { type } from 'arktype';
import * as v from 'valibot';
import { describe, expect, test } from 'vitest';
import { z } from 'zod';
import { createOutbox, defineEvents, type EventDefinition, fromPg } from '../../src/index.ts';

const schema = z.object({ id: z.string() });
const step = (payload: unknown) => payload;

describe('defineEvents', () => {
  test('keeps what it was given, with the defaults', () => {
    const orderingKey = ({ id }: { id: string }) => id;
    const jsonSchema = { type: 'object' };
    const events = defineEvents({
      'order.created': { version: 2, schema, upcast: { 1: step }, queue: 'orders', orderingKey, jsonSchema },
      'order.paid': { description: 'The customer has paid.' },
    });
    expect(events).toEqual({
      'order.created': { version: 2, schema, upcast: { 1: step }, queue: 'orders', orderingKey, jsonSchema },
      'order.paid': { version: 1, upcast: {}, description: 'The customer has paid.' },
    });
    expect(Object.keys(events)).toEqual(['order.created', 'order.paid']);
    expect(() => Object.assign(events, { 'order.late': {} })).toThrow(TypeError);
  });

  test.each([
    ['zod', z.object({ id: z.string() })],
    ['valibot', v.object({ id: v.string() })],
    ['arktype', type({ id: 'string' })],
  ])('takes a schema of %s', (_, given) => {
    expect(defineEvents({ 'order.created': { schema: given } })['order.created'].schema).toBe(given);
  });

  const refused: [name: string, definition: unknown, says: RegExp][] = [
    ['no object', 5, /"order.created": its definition must be an object/],
    ['a misspelt field', { shema: schema }, /no option shema. Did you mean schema\?/],
    ['version 0', { version: 0 }, /version must be a whole number from 1 .* Got 0/],
    ['version 1.5', { version: 1.5 }, /Got 1.5/],
    ['version "2"', { version: '2' }, /Got "2"/],
    ['a JSON Schema as schema', { schema: { type: 'object' } }, /schema must be a Standard Schema/],
    ['a Standard Schema of another version', { schema: { '~standard': { version: 2, validate: step } } }, /version 1/],
    ['null as schema', { schema: null }, /schema must be a Standard Schema/],
    ['no upcast at all', { version: 2 }, /version is 2, so upcast needs a function 1, from version 1 to 2/],
    ['a gap in the chain', { version: 4, upcast: { 1: step, 3: step } }, /upcast needs a function 2/],
    ['an upcast that is not a function', { version: 2, upcast: { 1: {} } }, /upcast needs a function 1/],
    ['an upcast from the newest version', { version: 2, upcast: { 1: step, 2: step } }, /upcast has the entry "2"/],
    ['an upcast of no version', { version: 2, upcast: { 1: step, v1: step } }, /upcast has the entry "v1"/],
    ['an upcast in a list', { version: 2, upcast: [step] }, /upcast must be an object/],
    ['a bad queue', { queue: 'a b' }, /queue must be a text of 1 to 100 letters/],
    ['a key that is not a function', { orderingKey: 'id' }, /orderingKey must be a function/],
    ['a description that is not a string', { description: 5 }, /description must be a text/],
    ['a JSON Schema that is not an object', { jsonSchema: true }, /jsonSchema must be an object/],
  ];
  test.each(refused)('refuses %s', (_, definition, says) => {
    const define = () => defineEvents({ 'order.created': definition as EventDefinition });
    expect(define).toThrow(expect.objectContaining({ code: 'POSTCOMMIT_E_BAD_CATALOGUE' }));
    expect(define).toThrow(says);
  });

  test.each([undefined, null, [], 'order.created', {}, { '': {} }, { 'order.*': {} }, { ['x'.repeat(1_001)]: {} }])(
    'refuses %j as a catalogue',
    (definitions) => {
      expect(() => defineEvents(definitions as never)).toThrow(
        expect.objectContaining({ code: 'POSTCOMMIT_E_BAD_CATALOGUE' }),
      );
    },
  );

  test('an outbox takes nothing else as events', () => {
    const db = fromPg({ connect: () => {}, query: () => {}, on: () => {} } as never);
    expect(() => createOutbox({ db, events: { 'order.created': {} } as never })).toThrow(/must be what defineEvents/);
  });
});
