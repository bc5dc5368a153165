import type { JsonSchema } from '../../src/schema/compatibility/json-schema.ts';

/** A change of a schema, with the verdict of each mode. `full` is both. */
export interface Pair {
  name: string;
  before: JsonSchema;
  after: JsonSchema;
  backward: boolean;
  forward: boolean;
  /** A part of the explanation. */
  says?: string;
}

const text = { type: 'string' };
const number = { type: 'number' };
const integer = { type: 'integer' };

function object(properties: Record<string, JsonSchema>, required: string[] = Object.keys(properties), more = {}) {
  return { type: 'object', properties, required, ...more };
}

const closed = { additionalProperties: false };
const card = object({ kind: { const: 'card' }, number: text });
const cash = object({ kind: { const: 'cash' } });
const voucher = object({ kind: { const: 'voucher' }, code: text });

export const pairs: readonly Pair[] = [
  {
    name: 'an annotation changed',
    before: object({ id: text }),
    after: { ...object({ id: { ...text, description: 'the order' } }), title: 'Order' },
    backward: true,
    forward: true,
  },
  {
    name: 'an optional field added',
    before: object({ id: text }),
    after: object({ id: text, note: text }, ['id']),
    backward: true,
    forward: true,
  },
  {
    name: 'a required field added',
    before: object({ id: text }),
    after: object({ id: text, total: number }),
    backward: false,
    forward: true,
    says: 'total: new required field, which events written before do not have',
  },
  {
    name: 'an optional field became required',
    before: object({ id: text, note: text }, ['id']),
    after: object({ id: text, note: text }),
    backward: false,
    forward: true,
    says: 'note: optional field became required',
  },
  {
    name: 'a required field became optional',
    before: object({ id: text, note: text }),
    after: object({ id: text, note: text }, ['id']),
    backward: true,
    forward: false,
    says: 'note: required field became optional',
  },
  {
    name: 'a required field removed',
    before: object({ id: text, total: number }),
    after: object({ id: text }),
    backward: true,
    forward: false,
    says: 'total: required field removed',
  },
  {
    name: 'an optional field removed',
    before: object({ id: text, note: text }, ['id']),
    after: object({ id: text }),
    backward: true,
    forward: false,
    says: 'note: field removed: consumers with the old schema no longer get it',
  },
  {
    name: 'a required field renamed',
    before: object({ id: text, amount: number }),
    after: object({ id: text, total: number }),
    backward: false,
    forward: false,
    says: 'amount: required field removed (renamed to total?)',
  },
  {
    name: 'an optional field renamed',
    before: object({ id: text, memo: number }, ['id']),
    after: object({ id: text, note: number }, ['id']),
    backward: true,
    forward: false,
    says: 'memo: field removed (renamed to note?)',
  },
  {
    name: 'a type changed',
    before: object({ id: number }),
    after: object({ id: text }),
    backward: false,
    forward: false,
    says: 'id: type narrowed: number is no longer accepted, only string',
  },
  {
    name: 'integer widened to number',
    before: object({ total: integer }),
    after: object({ total: number }),
    backward: true,
    forward: false,
    says: 'total: type widened: may now be number',
  },
  {
    name: 'number narrowed to integer',
    before: object({ total: number }),
    after: object({ total: integer }),
    backward: false,
    forward: true,
    says: 'total: type narrowed: number is no longer accepted, only integer',
  },
  {
    name: 'null allowed by a list of types',
    before: object({ note: text }),
    after: object({ note: { type: ['string', 'null'] } }),
    backward: true,
    forward: false,
    says: 'note: type widened: may now be null',
  },
  {
    name: 'null no longer allowed by a union',
    before: object({ note: { anyOf: [text, { type: 'null' }] } }),
    after: object({ note: text }),
    backward: false,
    forward: true,
    says: 'note: type narrowed: null is no longer accepted',
  },
  {
    name: 'null written in another way',
    before: object({ note: { anyOf: [text, { type: 'null' }] } }),
    after: object({ note: { type: ['string', 'null'] } }),
    backward: true,
    forward: true,
  },
  {
    name: 'a value added to an enum',
    before: object({ status: { enum: ['open', 'paid'] } }),
    after: object({ status: { enum: ['open', 'paid', 'refunded'] } }),
    backward: true,
    forward: false,
    says: 'status: value "refunded" added, which consumers with the old schema do not accept',
  },
  {
    name: 'a value removed from an enum',
    before: object({ status: { enum: ['open', 'paid', 'void'] } }),
    after: object({ status: { enum: ['open', 'paid'] } }),
    backward: false,
    forward: true,
    says: 'status: value "void" removed',
  },
  {
    name: 'a text limited to an enum',
    before: object({ status: text }),
    after: object({ status: { type: 'string', enum: ['open', 'paid'] } }),
    backward: false,
    forward: true,
    says: 'status: limited to "open", "paid"',
  },
  {
    name: 'a const widened to an enum that contains it',
    before: object({ currency: { const: 'EUR' } }),
    after: object({ currency: { enum: ['EUR', 'USD'] } }),
    backward: true,
    forward: false,
    says: 'currency: value "USD" added',
  },
  {
    name: 'a field of a nested object became required',
    before: object({ customer: object({ id: text, email: text }, ['id']) }),
    after: object({ customer: object({ id: text, email: text }) }),
    backward: false,
    forward: true,
    says: 'customer.email: optional field became required',
  },
  {
    name: 'a field of the items of a list changed its type',
    before: object({ items: { type: 'array', items: object({ price: number }) } }),
    after: object({ items: { type: 'array', items: object({ price: text }) } }),
    backward: false,
    forward: false,
    says: 'items[].price: type narrowed',
  },
  {
    name: 'a list must have an item',
    before: object({ items: { type: 'array', items: text } }),
    after: object({ items: { type: 'array', items: text, minItems: 1 } }),
    backward: false,
    forward: true,
    says: 'items: minItems narrowed from none to 1',
  },
  {
    name: 'a tuple grew by an item',
    before: object({ at: { type: 'array', prefixItems: [number, number], minItems: 2, maxItems: 2 } }),
    after: object({ at: { type: 'array', prefixItems: [number, number, number], minItems: 3, maxItems: 3 } }),
    backward: false,
    forward: false,
    says: 'at: minItems narrowed from 2 to 3',
  },
  {
    name: 'an alternative added to a union',
    before: object({ payment: { oneOf: [card, cash] } }),
    after: object({ payment: { oneOf: [card, cash, voucher] } }),
    backward: true,
    forward: false,
    says: 'payment.kind: value "voucher" added',
  },
  {
    name: 'an alternative removed from a union',
    before: object({ payment: { oneOf: [card, cash, voucher] } }),
    after: object({ payment: { oneOf: [card, cash] } }),
    backward: false,
    forward: true,
    says: 'payment.kind: value "voucher" removed',
  },
  {
    name: 'a field of one alternative became required',
    before: object({ payment: { oneOf: [card, { ...voucher, required: ['kind'] }] } }),
    after: object({ payment: { oneOf: [card, voucher] } }),
    backward: false,
    forward: true,
    says: 'payment.code: optional field became required',
  },
  {
    name: 'a definition behind a reference changed',
    before: { ...object({ to: { $ref: '#/$defs/address' } }), $defs: { address: object({ city: text }) } },
    after: { ...object({ to: { $ref: '#/$defs/address' } }), $defs: { address: object({ city: text, zip: text }) } },
    backward: false,
    forward: true,
    says: 'to.zip: new required field',
  },
  {
    name: 'a part moved into a definition',
    before: object({ to: object({ city: text }) }),
    after: { ...object({ to: { $ref: '#/$defs/address' } }), $defs: { address: object({ city: text }) } },
    backward: true,
    forward: true,
  },
  {
    name: 'a field of a recursive schema changed',
    before: { ...object({ name: text, parts: { type: 'array', items: { $ref: '#' } } }, ['name']) },
    after: {
      ...object({ name: { type: ['string', 'null'] }, parts: { type: 'array', items: { $ref: '#' } } }, ['name']),
    },
    backward: true,
    forward: false,
    says: 'name: type widened: may now be null',
  },
  {
    name: 'an object was closed',
    before: object({ id: text }),
    after: object({ id: text }, ['id'], closed),
    backward: true,
    forward: true,
  },
  {
    name: 'an optional field added to a closed object',
    before: object({ id: text }, ['id'], closed),
    after: object({ id: text, note: text }, ['id'], closed),
    backward: true,
    forward: false,
    says: 'note: field added, and consumers with the old schema allow no other fields',
  },
  {
    name: 'a field removed from a closed object',
    before: object({ id: text, note: text }, ['id'], closed),
    after: object({ id: text }, ['id'], closed),
    backward: false,
    forward: false,
    says: 'note: field removed from an object that allows no other fields',
  },
  {
    name: 'the values of a record widened',
    before: object({ labels: { type: 'object', additionalProperties: text } }),
    after: object({ labels: { type: 'object', additionalProperties: { type: ['string', 'number'] } } }),
    backward: true,
    forward: false,
    says: 'labels.*: type widened: may now be number',
  },
  {
    name: 'a range narrowed',
    before: object({ total: { type: 'number', minimum: 0 } }),
    after: object({ total: { type: 'number', exclusiveMinimum: 0, maximum: 100 } }),
    backward: false,
    forward: true,
    says: 'total: minimum narrowed from 0 to 0 (exclusive)',
  },
  {
    name: 'a length widened',
    before: object({ name: { type: 'string', minLength: 1, maxLength: 40 } }),
    after: object({ name: { type: 'string', maxLength: 80 } }),
    backward: true,
    forward: false,
    says: 'name: maxLength widened from 40 to 80',
  },
  {
    name: 'a format added',
    before: object({ email: text }),
    after: object({ email: { type: 'string', format: 'email' } }),
    backward: false,
    forward: true,
    says: 'email: format narrowed from none to email',
  },
  {
    name: 'a pattern changed',
    before: object({ sku: { type: 'string', pattern: '^[A-Z]+$' } }),
    after: object({ sku: { type: 'string', pattern: '^[A-Z0-9]+$' } }),
    backward: false,
    forward: false,
    says: 'sku: pattern',
  },
  {
    name: 'two objects joined with allOf instead of one',
    before: object({ id: text, total: number }),
    after: { allOf: [object({ id: text }), object({ total: number })] },
    backward: true,
    forward: true,
  },
  {
    name: 'any payload limited to an object',
    before: {},
    after: object({ id: text }),
    backward: false,
    forward: true,
    says: 'type narrowed',
  },
];
