import { randomUUID } from 'node:crypto';
import { describe, expect, test } from 'vitest';
import { cloudEvents, envelope, raw, readMessage } from '../../src/index.ts';
import { DeliveredEvent } from '../../src/wire/delivered-event.ts';

const id = randomUUID();
const traceparent = '00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01';
const event = new DeliveredEvent(
  {
    seq: '9007199254740993',
    id,
    type: 'order.created',
    aggregateType: 'order',
    aggregateId: 'Größe 7',
    schemaVersion: 2,
    orderingKey: null,
    replayId: null,
    createdAtMs: 1_700_000_000_123,
    headersJson: JSON.stringify({ traceparent }),
  },
  '{"total": 3}',
);

const formats = {
  envelope: envelope(),
  raw: raw(),
  structured: cloudEvents({ source: '/orders' }),
  binary: cloudEvents({ source: '/orders', mode: 'binary' }),
};

describe('reading a message', () => {
  test.each(
    Object.entries(formats).flatMap(([format, serializer]) =>
      ['ce_', 'ce-', 'cloudEvents_'].map((prefix) => ({ format, prefix, serializer })),
    ),
  )('$format with $prefix gives back what was emitted', async ({ prefix, serializer }) => {
    const {
      body,
      contentType,
      headers = {},
    } = await serializer.serialize(event, { cloudEventsPrefix: prefix, topic: 'orders' });
    const lower = Object.fromEntries(Object.entries(headers).map(([name, value]) => [name.toLowerCase(), value]));
    const bytes = Buffer.from(body);
    expect(readMessage({ body: bytes, contentType, headers: { traceparent, ...lower } })).toMatchObject({
      id,
      type: 'order.created',
      payload: { total: 3 },
      schemaVersion: 2,
      aggregate: { type: 'order', id: 'Größe 7' },
      key: 'Größe 7',
      seq: '9007199254740993',
      occurredAt: new Date(1_700_000_000_123),
      headers: { traceparent },
    });
  });

  const good = {
    eventId: id,
    eventType: 't',
    eventSeq: '1',
    schemaVersion: 1,
    aggregate: { type: 'a', id: 'b' },
    data: 1,
  };
  test('an envelope needs no headers, nor does a structured CloudEvent with its content type', async () => {
    expect(readMessage({ body: JSON.stringify(good) })).toMatchObject({ id, payload: 1, key: null, headers: {} });
    const { body, contentType } = await formats.structured.serialize(event, {
      cloudEventsPrefix: 'ce_',
      topic: 'orders',
    });
    expect(readMessage({ body, contentType })).toMatchObject({ id, type: 'order.created', payload: { total: 3 } });
  });

  const bad = 'POSTCOMMIT_E_BAD_MESSAGE';
  test.each([
    ['a payload without headers', { body: '{"total": 3}' }],
    ['no body', { headers: {} }],
    ['a body that is parsed', { body: good, headers: {} }],
    ['no message', undefined],
  ])('refuses %s', (_what, message) => {
    expect(() => readMessage(message as never)).toThrow(expect.objectContaining({ code: bad }));
  });

  const version = 'POSTCOMMIT_E_ENVELOPE_VERSION';
  test.each([
    ['no JSON', '{', {}, bad],
    ['no UTF-8', Buffer.from([0x22, 0xff, 0x22]), {}, bad],
    ['nothing', '', {}, bad],
    ['no event', '{"a": 1}', {}, bad],
    ['an id that is not text', '{"eventId": {"toString": 1, "valueOf": 1}}', { 'event-id': id }, bad],
    ['an id that is not a UUID', JSON.stringify({ ...good, eventId: '7' }), {}, 'POSTCOMMIT_E_BAD_ID'],
    ['no aggregate', JSON.stringify({ ...good, aggregate: null }), {}, bad],
    ['no version', JSON.stringify({ ...good, schemaVersion: 'x' }), {}, bad],
    ['a seq that is no number', JSON.stringify({ ...good, eventSeq: '1e9' }), {}, bad],
    ['a time that is none', JSON.stringify({ ...good, occurredAt: 'soon' }), {}, bad],
    ['a later envelope', JSON.stringify({ ...good, envelopeVersion: 2 }), {}, version],
    ['a later CloudEvent', '{"specversion": "2.0"}', { 'content-type': 'application/cloudevents+json' }, version],
    ['a later binary CloudEvent', '1', { ce_specversion: '2.0' }, version],
    ['a raw event with a bad id', '1', { 'event-id': '7', 'event-type': 't' }, 'POSTCOMMIT_E_BAD_ID'],
  ])('refuses %s', (_what, body, headers, code) => {
    expect(() => readMessage({ body, headers: headers as Record<string, string> })).toThrow(
      expect.objectContaining({ code }),
    );
  });

  test.each([
    ['an envelope', good],
    ['an envelope with its version', { ...good, envelopeVersion: 1 }],
    ['a later envelope', { envelopeVersion: 2, eventId: id, what: 'ever' }],
  ])('a payload that looks like %s of another event is a payload', (_what, payload) => {
    const headers = { 'event-id': randomUUID(), 'event-type': 'audited' };
    expect(readMessage({ body: JSON.stringify(payload), headers })).toMatchObject({
      id: headers['event-id'],
      type: 'audited',
      payload,
    });
  });

  test('an envelope whose header has its id is an envelope, in whichever case, and refused in a later version', () => {
    const headers = { 'event-id': id.toUpperCase(), 'event-type': 't' };
    expect(readMessage({ body: JSON.stringify(good), headers })).toMatchObject({ id, payload: 1 });
    const later = JSON.stringify({ envelopeVersion: 2, eventId: id, what: 'ever' });
    expect(() => readMessage({ body: later, headers })).toThrow(expect.objectContaining({ code: version }));
  });
});
