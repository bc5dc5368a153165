import { describe, expect, test, vi } from 'vitest';
import { z } from 'zod';
import { defineEvents, readEvent } from '../../src/index.ts';

const toCents = vi.fn(({ total }: { total: number }) => ({ cents: total * 100 }));
const withCurrency = vi.fn(({ cents }: { cents: number }) => ({ cents, currency: 'EUR' }));
const events = defineEvents({
  'order.created': {
    version: 3,
    schema: z.object({ cents: z.number(), currency: z.string(), note: z.string().default('') }),
    upcast: { 1: toCents, 2: withCurrency },
  },
  'order.paid': {
    version: 2,
    upcast: {
      1: () => {
        throw new Error('no such currency');
      },
    },
  },
  'order.async': { schema: z.object({ id: z.string() }).refine(async ({ id }) => id !== 'bad', 'a bad id') },
  'order.late': { version: 2, upcast: { 1: async () => ({}) } },
  'order.plain': {},
});
const coded = (code: string, says: string) =>
  expect.objectContaining({ code, message: expect.stringContaining(says) as string });

describe('readEvent', () => {
  test.each([
    [1, { total: 7 }, { cents: 700, currency: 'EUR', note: '' }],
    [2, { cents: 700 }, { cents: 700, currency: 'EUR', note: '' }],
    [3, { cents: 700, currency: 'USD', note: 'x' }, { cents: 700, currency: 'USD', note: 'x' }],
  ])('brings version %i to the newest one', (version, payload, expected) => {
    toCents.mockClear();
    withCurrency.mockClear();
    expect(readEvent(events, { type: 'order.created', version, payload })).toEqual({ payload: expected, version: 3 });
    expect(toCents).toHaveBeenCalledTimes(version === 1 ? 1 : 0);
    expect(withCurrency).toHaveBeenCalledTimes(version < 3 ? 1 : 0);
  });

  test('leaves a type without a schema, one that is not listed, and every type without a catalogue as it is', () => {
    const payload = { a: 1 };
    for (const [catalogue, type] of [
      [events, 'order.plain'],
      [events, 'order.unlisted'],
      [events, 'constructor'],
      [undefined, 'order.created'],
    ] as const) {
      const read = readEvent(catalogue, { type, version: 1, payload });
      expect(read).toEqual({ payload, version: 1 });
      expect((read as { payload: unknown }).payload).toBe(payload);
    }
  });

  test('refuses a payload that does not match the newest schema, and tells where it came from', () => {
    const read = (version: number, payload: unknown) => () =>
      readEvent(events, { type: 'order.created', version, payload });
    expect(read(3, { cents: '7', currency: 'EUR' })).toThrow(
      coded('POSTCOMMIT_E_STORED_PAYLOAD_INVALID', 'order.created, version 3: cents: '),
    );
    expect(read(1, {})).toThrow(coded('POSTCOMMIT_E_STORED_PAYLOAD_INVALID', 'upcast from version 1: cents: '));
  });

  test('refuses what an upcast cannot read, and an upcast that is asynchronous', () => {
    expect(() => readEvent(events, { type: 'order.created', version: 1, payload: null })).toThrow(
      coded('POSTCOMMIT_E_UPCAST_FAILED', 'order.created, version 1 to 2: it threw '),
    );
    expect(() => readEvent(events, { type: 'order.paid', version: 1, payload: {} })).toThrow(
      coded('POSTCOMMIT_E_UPCAST_FAILED', 'it threw no such currency'),
    );
    expect(() => readEvent(events, { type: 'order.late', version: 1, payload: {} })).toThrow(
      coded('POSTCOMMIT_E_UPCAST_FAILED', 'it returned a promise'),
    );
  });

  test('returns a promise only where the schema is asynchronous', async () => {
    const good = readEvent(events, { type: 'order.async', version: 1, payload: { id: '1' } });
    expect(good).toBeInstanceOf(Promise);
    expect(await good).toEqual({ payload: { id: '1' }, version: 1 });
    await expect(readEvent(events, { type: 'order.async', version: 1, payload: { id: 'bad' } })).rejects.toEqual(
      coded('POSTCOMMIT_E_STORED_PAYLOAD_INVALID', 'a bad id'),
    );
  });

  test('does with a newer version what unknownVersions says', () => {
    const newer = { type: 'order.created', version: 4, payload: { total: 'all of it' } };
    const refused = coded('POSTCOMMIT_E_UNKNOWN_VERSION', 'It is version 4 of order.created; the newest');
    expect(() => readEvent(events, newer)).toThrow(refused);
    expect(() => readEvent(events, newer, 'retry')).toThrow(refused);
    expect(() => readEvent(events, newer, 'deadLetter')).toThrow(refused);
    expect(readEvent(events, newer, 'deliver')).toEqual({ payload: newer.payload, version: 4 });
  });

  test.each([0, -1, 1.5, Number.NaN, '1'])('refuses version %s', (version) => {
    const stored = { type: 'order.created', version: version as number, payload: {} };
    expect(() => readEvent(events, stored)).toThrow(coded('POSTCOMMIT_E_UNKNOWN_VERSION', 'order.created'));
  });
});
