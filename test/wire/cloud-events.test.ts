import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { type CloudEventsOptions, cloudEvents } from '../../src/wire/cloud-events.ts';
import type { Serialized } from '../../src/wire/serializer.ts';
import { deliveredEvent, traceparent } from './event.ts';

const kafka = { cloudEventsPrefix: 'ce_', topic: 'orders' };
const http = { cloudEventsPrefix: 'ce-', topic: 'orders' };
type Row = Parameters<typeof deliveredEvent>[0];

function structured(row?: Row, options: Partial<CloudEventsOptions> = {}): Record<string, unknown> {
  const { body } = cloudEvents({ source: '/orders', ...options }).serialize(deliveredEvent(row), kafka) as Serialized;
  return JSON.parse(String(body));
}

function binary(row: Row, binding = kafka, options: Partial<CloudEventsOptions> = {}): Serialized {
  return cloudEvents({ source: '/orders', mode: 'binary', ...options }).serialize(
    deliveredEvent(row),
    binding,
  ) as Serialized;
}

/** What the specification asks of every event (version 1.0, "Context Attributes" and "JSON Event Format"). */
function assertCloudEvent(event: Record<string, unknown>): void {
  expect(event.specversion).toBe('1.0');
  for (const required of ['id', 'source', 'type']) expect(event[required]).toEqual(expect.stringMatching(/./su));
  expect(event.time).toEqual(expect.stringMatching(/^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$/));
  for (const [name, value] of Object.entries(event)) {
    expect(name).toMatch(/^[a-z0-9]{1,20}$/);
    if (name !== 'data') expect(['string', 'number', 'boolean']).toContain(typeof value);
    if (name !== 'data') expect(value).not.toBe('');
  }
}

const name = fc.string({ unit: 'binary', minLength: 1, maxLength: 30 }).filter((value) => !value.includes('\0'));

describe('CloudEvents, structured', () => {
  it('is one JSON object with all attributes and the payload', () => {
    const row = { headersJson: JSON.stringify({ traceparent, tracestate: 'a=1', tenant: 'blue' }) };
    const serialized = cloudEvents({ source: '/orders', dataSchema: 'urn:order' }).serialize(
      deliveredEvent(row),
      kafka,
    );
    expect(serialized).toEqual({
      contentType: 'application/cloudevents+json; charset=utf-8',
      body: expect.any(String),
    });
    expect(JSON.parse(String((serialized as Serialized).body))).toEqual({
      specversion: '1.0',
      id: '0199d0a0-6f00-7000-8000-000000000001',
      source: '/orders',
      type: 'order.created',
      time: '2026-01-31T12:00:00.000Z',
      subject: '42',
      dataschema: 'urn:order',
      partitionkey: '42',
      sequence: '0000000000000000007',
      traceparent,
      tracestate: 'a=1',
      aggregatetype: 'order',
      aggregateid: '42',
      schemaversion: 2,
      datacontenttype: 'application/json',
      data: { total: 3 },
    });
  });

  it('leaves out what an event does not have', () => {
    const event = structured({ orderingKey: '' });
    for (const absent of ['partitionkey', 'traceparent', 'tracestate', 'dataschema'])
      expect(event).not.toHaveProperty(absent);
    expect(structured({ orderingKey: 'customer-1' }).partitionkey).toBe('customer-1');
    expect(structured({ headersJson: '{"traceparent":7}' })).not.toHaveProperty('traceparent');
  });

  it('is valid, whatever is in the event', () => {
    const rows = fc.record({ type: name, aggregateType: name, aggregateId: name, payloadJson: fc.json() });
    fc.assert(
      fc.property(rows, (row) => {
        const event = structured(row);
        assertCloudEvent(event);
        expect(event).toMatchObject({ type: row.type, subject: row.aggregateId, aggregatetype: row.aggregateType });
        expect(event.data).toEqual(JSON.parse(row.payloadJson));
      }),
    );
  });

  it('has a sequence that orders as text, as the seqs do as numbers', () => {
    const seq = fc.bigInt({ min: 1n, max: 2n ** 63n - 1n });
    fc.assert(
      fc.property(seq, seq, (one, other) => {
        const [a, b] = [one, other].map((each) => structured({ seq: String(each) }).sequence as string);
        expect(a).toHaveLength(19);
        expect(BigInt(a as string)).toBe(one);
        expect((a as string) < (b as string)).toBe(one < other);
      }),
    );
    expect(structured()).not.toHaveProperty('sequencetype');
  });

  it('keeps numbers digit by digit', () => {
    const payloadJson = '{"amount": 12345678901234567890.12345678901234567890}';
    const { body } = cloudEvents({ source: '/x' }).serialize(deliveredEvent({ payloadJson }), kafka) as Serialized;
    expect(String(body).endsWith(`"data":${payloadJson}}`)).toBe(true);
  });

  it('takes attributes from functions of the event', () => {
    const event = structured(undefined, {
      source: ({ aggregate }) => `/${aggregate.type}s`,
      type: ({ type }) => `com.example.${type}`,
      dataSchema: ({ schemaVersion }) => `urn:order:${schemaVersion}`,
    });
    expect(event).toMatchObject({ source: '/orders', type: 'com.example.order.created', dataschema: 'urn:order:2' });
    expect(structured(undefined, { dataSchema: () => undefined })).not.toHaveProperty('dataschema');
    expect(() => structured(undefined, { source: () => '' })).toThrow(/source\(\) must return a string/);
  });
});

describe('CloudEvents, binary', () => {
  it('has the payload as its body, and the attributes as headers with the prefix of the binding', () => {
    const row = { headersJson: JSON.stringify({ traceparent }), aggregateId: 'Nr. 7 ü' };
    expect(binary(row)).toEqual({
      body: '{"total":3}',
      contentType: 'application/json',
      headers: {
        ce_specversion: '1.0',
        ce_id: '0199d0a0-6f00-7000-8000-000000000001',
        ce_source: '/orders',
        ce_type: 'order.created',
        ce_time: '2026-01-31T12:00:00.000Z',
        ce_subject: 'Nr. 7 ü',
        ce_partitionkey: 'Nr. 7 ü',
        ce_sequence: '0000000000000000007',
        ce_traceparent: traceparent,
        ce_aggregatetype: 'order',
        ce_aggregateid: 'Nr. 7 ü',
        ce_schemaversion: '2',
      },
    });
    expect(Object.keys(binary({}, { cloudEventsPrefix: 'cloudEvents_', topic: 'orders' }).headers ?? {})).toContain(
      'cloudEvents_type',
    );
  });

  it('percent-encodes values where headers are ASCII', () => {
    const { headers } = binary({ aggregateId: 'Euro € 😀', type: '100% "sure"' }, http);
    expect(headers).toMatchObject({
      'ce-subject': 'Euro%20%E2%82%AC%20%F0%9F%98%80',
      'ce-type': '100%25%20%22sure%22',
      'ce-source': '/orders',
    });
  });

  it('gives values there that are printable ASCII and can be decoded', () => {
    fc.assert(
      fc.property(name, (aggregateId) => {
        const encoded = binary({ aggregateId }, http).headers?.['ce-subject'] ?? '';
        expect(encoded).toMatch(/^[\x21\x23-\x7e]+$/);
        expect(decodeURIComponent(encoded)).toBe(aggregateId);
      }),
    );
  });
});

describe('the options of cloudEvents', () => {
  it.each([
    [undefined, /source must be/],
    [{}, /source must be/],
    [{ source: '' }, /source must be/],
    [{ source: '/x', mode: 'batched' }, /mode must be/],
    [{ source: '/x', type: 'order' }, /type must be a function/],
    [{ source: '/x', dataSchema: 7 }, /dataSchema must be/],
    [{ source: '/x', dataschema: 'urn:x' }, /no option dataschema/],
  ])('%j are refused', (options, message) => {
    expect(() => cloudEvents(options as CloudEventsOptions)).toThrow(
      expect.objectContaining({ code: 'POSTCOMMIT_E_BAD_OPTION', message: expect.stringMatching(message) }),
    );
  });
});
