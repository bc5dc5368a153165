import { readFile } from 'node:fs/promises';
import { inspect } from 'node:util';
import { Ajv2020 } from 'ajv/dist/2020.js';
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { envelope } from '../../src/wire/envelope.ts';
import { raw } from '../../src/wire/raw.ts';
import type { Serialized, Serializer } from '../../src/wire/serializer.ts';
import { deliveredEvent, traceId, traceparent } from './event.ts';

const binding = { cloudEventsPrefix: 'ce_', topic: 'orders' };
const schema = JSON.parse(
  await readFile(new URL('../../docs/wire-format/envelope.schema.json', import.meta.url), 'utf8'),
);
const validate = new Ajv2020({ allErrors: true, allowUnionTypes: true }).compile(schema);

const serialize = (serializer: Serializer, row?: Parameters<typeof deliveredEvent>[0]) =>
  serializer.serialize(deliveredEvent(row), binding) as Serialized;

/** What PostgreSQL can store, and so what can be in an event. */
const text = fc.string({ unit: 'binary', minLength: 1, maxLength: 40 }).filter((value) => !value.includes('\0'));
const name = fc.oneof(
  text,
  fc.constantFrom('"', '\\', '","data":1,"x":"', 'a\nb', '\u2028', '__proto__', '注文', '🧾'),
);
/** Any that PostgreSQL can draw. Beyond 2^53 a number would lose digits. */
const seq = fc.bigInt({ min: 1n, max: 2n ** 63n - 1n }).map(String);
const digits = fc.stringMatching(/^-?[1-9][0-9]{0,300}(\.[0-9]{1,50})?$/);

describe('the envelope', () => {
  it('is JSON with the facts and the payload', () => {
    const { body, contentType, headers } = serialize(envelope(), { headersJson: JSON.stringify({ traceparent }) });
    expect(body).toBe(
      `{"eventId":"0199d0a0-6f00-7000-8000-000000000001","eventType":"order.created","eventSeq":"7","schemaVersion":2,` +
        `"occurredAt":"2026-01-31T12:00:00.000Z","traceId":"${traceId}","aggregate":{"type":"order","id":"42"},` +
        `"data":{"total":3}}`,
    );
    expect(contentType).toBe('application/json');
    expect(headers).toEqual({
      'event-id': '0199d0a0-6f00-7000-8000-000000000001',
      'event-key': '42',
      'event-type': 'order.created',
      'schema-version': '2',
      'occurred-at': '2026-01-31T12:00:00.000Z',
      'aggregate-type': 'order',
      'aggregate-id': '42',
      'event-seq': '7',
      'trace-id': traceId,
    });
  });

  it('follows its schema, whatever is in the event', () => {
    fc.assert(
      fc.property(
        fc.record({
          id: fc.uuid(),
          seq: seq,
          type: name,
          aggregateType: name,
          aggregateId: name,
          schemaVersion: fc.integer({ min: 1, max: 2_147_483_647 }),
          createdAtMs: fc.integer({ min: 0, max: Date.UTC(9999, 11, 31) }),
          payloadJson: fc.json(),
          headersJson: fc.constantFrom('{}', JSON.stringify({ traceparent }), '{"traceparent":"nonsense"}'),
        }),
        (row) => {
          const { body, headers } = serialize(envelope(), row);
          const parsed = JSON.parse(String(body));
          expect(validate(parsed), JSON.stringify(validate.errors)).toBe(true);
          expect(parsed).toEqual({
            eventId: row.id,
            eventType: row.type,
            eventSeq: row.seq,
            schemaVersion: row.schemaVersion,
            occurredAt: new Date(row.createdAtMs).toISOString(),
            traceId: row.headersJson.includes(traceId) ? traceId : null,
            aggregate: { type: row.aggregateType, id: row.aggregateId },
            data: JSON.parse(row.payloadJson),
          });
          expect(headers).toMatchObject({
            'event-type': row.type,
            'aggregate-id': row.aggregateId,
            'event-seq': row.seq,
          });
          expect('trace-id' in (headers ?? {})).toBe(parsed.traceId !== null);
        },
      ),
    );
  });

  it('has a schema that refuses what is not one', () => {
    const good = JSON.parse(String(serialize(envelope()).body));
    expect(validate(good)).toBe(true);
    for (const missing of Object.keys(good)) {
      const { [missing]: _, ...rest } = good;
      expect(validate(rest), `without ${missing}`).toBe(false);
    }
    const wrong = [
      { eventId: 'x' },
      { eventSeq: 7 },
      { eventSeq: '07' },
      { schemaVersion: '1' },
      { occurredAt: 'today' },
      { traceId: '' },
      { aggregate: 'order' },
    ];
    for (const change of wrong) expect(validate({ ...good, ...change }), JSON.stringify(change)).toBe(false);
  });

  it('keeps numbers digit by digit, and the payload as it stands', () => {
    fc.assert(
      fc.property(digits, (number) => {
        const payloadJson = `{"amount": ${number}, "again": [${number}]}`;
        expect(String(serialize(envelope(), { payloadJson }).body).endsWith(`"data":${payloadJson}}`)).toBe(true);
        expect(serialize(raw(), { payloadJson }).body).toBe(payloadJson);
      }),
    );
  });

  it('takes the trace from a traceparent that is one', () => {
    const traceOf = (headers: unknown) =>
      JSON.parse(String(serialize(envelope(), { headersJson: JSON.stringify(headers) }).body)).traceId;
    expect(traceOf({ traceparent })).toBe(traceId);
    expect(traceOf({ traceparent: traceparent.replace(/^00/, 'cc') })).toBe(traceId);
    expect(traceOf({ traceparent: `00-${'0'.repeat(32)}-00f067aa0ba902b7-01` })).toBeNull();
    expect(traceOf({ traceparent: traceparent.toUpperCase() })).toBeNull();
    expect(traceOf({ traceparent: 7 })).toBeNull();
  });
});

describe('the raw format', () => {
  it('has the payload alone as its body, and the facts as headers', () => {
    const given = { headersJson: JSON.stringify({ traceparent }), payloadJson: 'null' };
    const { body, contentType, headers } = serialize(raw(), given);
    expect(body).toBe('null');
    expect(contentType).toBe('application/json');
    expect(headers).toEqual(serialize(envelope(), given).headers);
  });
});

it('console.log of an event shows what it has', () => {
  const shown = inspect(deliveredEvent());
  expect(shown).toContain("type: 'order.created'");
  expect(shown).toContain('payload: { total: 3 }');
});
