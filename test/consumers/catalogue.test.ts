import { randomBytes, randomUUID } from 'node:crypto';
import { describe, expect, test } from 'vitest';
import { z } from 'zod';
import { defineEvents } from '../../src/index.ts';
import { consumeWebhook, signWebhook, type WebhookConsumerOptions } from '../../src/publishers/webhook.ts';
import { silent } from './consumer-suite.ts';

const secret = `whsec_${randomBytes(32).toString('base64')}`;
const events = defineEvents({
  'order.created': {
    version: 3,
    schema: z.object({ cents: z.number().int(), placedAt: z.coerce.date() }),
    upcast: {
      1: (v1: { total: number; at: string }) => {
        if (v1.total < 0) throw new Error('negative total');
        return { ...v1, total: v1.total * 100 };
      },
      2: ({ total, at }: { total: number; at: string }) => ({ cents: total, placedAt: at }),
    },
  },
  'order.paid': { schema: z.object({ by: z.string() }) },
});

type Options = WebhookConsumerOptions<unknown, typeof events>;

/** The status that the consumer answers with to one event, and what the handler got. */
async function consume(
  { type = 'order.created', version, data }: { type?: string; version: number; data: unknown },
  more: Partial<Options> = {},
) {
  const got: { type: string; payload: unknown; schemaVersion: number }[] = [];
  const consumer = consumeWebhook({
    secret,
    logger: silent,
    events,
    handle: ({ type, payload, schemaVersion }) => void got.push({ type, payload, schemaVersion }),
    ...more,
  } as Options);
  const eventId = randomUUID();
  const body = JSON.stringify({
    eventId,
    eventType: type,
    schemaVersion: version,
    aggregate: { type: 'order', id: '7' },
    data,
  });
  const headers = { ...signWebhook({ eventId, body, secret }) };
  const response = await consumer.handleRequest(new Request('http://x/', { method: 'POST', body, headers }));
  return { status: response.status, text: await response.text(), got, stats: consumer.stats() };
}

const placedAt = '2026-01-31T12:00:00.000Z';

describe('a consumer with a catalogue', () => {
  test('gets the newest version, whatever was emitted', async () => {
    const newest = { type: 'order.created', payload: { cents: 700, placedAt: new Date(placedAt) }, schemaVersion: 3 };
    for (const stored of [
      { version: 1, data: { total: 7, at: placedAt } },
      { version: 2, data: { total: 700, at: placedAt } },
      { version: 3, data: { cents: 700, placedAt } },
    ]) {
      expect(await consume(stored)).toMatchObject({ status: 204, got: [newest] });
    }
  });

  test('an upcast that throws and a payload that does not match are dead letters at once', async () => {
    const thrown = await consume({ version: 1, data: { total: -1, at: placedAt } }, { retry: { delaysMs: [1] } });
    expect(thrown).toMatchObject({ status: 400, got: [], stats: { deadLettered: 1, failed: 0 } });
    expect(thrown.text).toMatch(/^POSTCOMMIT_E_UPCAST_FAILED: .*negative total/);
    const invalid = await consume({ version: 3, data: { cents: 'many', placedAt } });
    expect(invalid).toMatchObject({ status: 400, got: [], stats: { deadLettered: 1 } });
    expect(invalid.text).toContain('POSTCOMMIT_E_STORED_PAYLOAD_INVALID');
  });

  test('log lines name the event as those of a relay do', async () => {
    const lines: [object, string][] = [];
    const logger = { ...silent, error: (fields: object, message: string) => void lines.push([fields, message]) };
    await consume({ version: 3, data: {} }, { logger });
    expect(lines).toEqual([
      [expect.objectContaining({ event_id: expect.any(String), event_type: 'order.created' }), 'message dead-lettered'],
    ]);
  });

  test('an unknown version is a dead letter, held back or delivered as it is', async () => {
    const later = { version: 4, data: { later: true } };
    const dead = await consume(later);
    expect([dead.status, dead.text]).toEqual([400, expect.stringContaining('POSTCOMMIT_E_UNKNOWN_VERSION')]);
    expect(await consume(later, { unknownVersions: 'retry' })).toMatchObject({
      status: 503,
      text: 'POSTCOMMIT_E_UNKNOWN_VERSION: It is version 4 of order.created; the newest in the catalogue is 3.',
      got: [],
      stats: { deadLettered: 0, released: 1 },
    });
    expect(await consume(later, { unknownVersions: 'deliver' })).toMatchObject({
      status: 204,
      got: [{ payload: { later: true }, schemaVersion: 4 }],
    });
  });

  test('a type that is not listed is skipped', async () => {
    const { status, got, stats } = await consume({ type: 'order.sent', version: 1, data: {} });
    expect([status, got, stats.skipped, stats.processed]).toEqual([204, [], 1, 0]);
  });

  test('options that cannot work are refused', () => {
    const handle = () => {};
    for (const wrong of [{ events: {} }, { unknownVersions: 'ignore' }]) {
      expect(() => consumeWebhook({ secret, handle, ...wrong } as unknown as Options)).toThrow(
        expect.objectContaining({ code: 'POSTCOMMIT_E_BAD_OPTION' }),
      );
    }
  });

  test('the handler is typed', () => {
    consumeWebhook({
      secret,
      events,
      handle(event) {
        if (event.type === 'order.created') {
          event.payload.cents satisfies number;
          event.payload.placedAt satisfies Date;
          // @ts-expect-error: a field of version 1
          void event.payload.total;
        } else {
          event.type satisfies 'order.paid';
          event.payload.by satisfies string;
        }
        // @ts-expect-error: no such type
        if (event.type === 'order.sent') return;
      },
    });
    consumeWebhook({
      secret,
      handle(event) {
        event.payload satisfies unknown;
        // @ts-expect-error: unknown without a catalogue
        void event.payload.cents;
      },
    });
  });
});
