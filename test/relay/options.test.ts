import { getHeapStatistics } from 'node:v8';
import { describe, expect, test } from 'vitest';
import { createRelay, defineEvents, type RelayOptions } from '../../src/index.ts';
import { createMetrics } from '../../src/metrics/index.ts';
import { resolveOptions } from '../../src/relay/options.ts';
import { ScriptedPublisher } from '../support/scripted-publisher.ts';

const good: RelayOptions = {
  connectionString: 'postgres://user:secret@127.0.0.1:5432/orders',
  handlers: { 'order.paid': { mail: () => {} } },
};

/** Every option, with what is taken and what is refused. A new option that is missing here fails the build. */
const options: Record<keyof RelayOptions, { taken: unknown[]; refused: unknown[] }> = {
  connectionString: {
    taken: [
      'postgresql://host/orders',
      'postgres://',
      'POSTGRES://user@[::1]:5432/orders?sslmode=disable',
      '/var/run/postgresql orders',
    ],
    refused: [
      undefined,
      null,
      '',
      5,
      {},
      new URL('postgres://user:secret@host/orders'),
      'orders',
      'host=localhost dbname=orders',
      'mysql://user:secret@host/orders',
      'postgres://user:secret@host:99999/orders',
    ],
  },
  connection: {
    taken: [undefined, {}, { ssl: true, options: '-c work_mem=64MB' }],
    refused: [null, 'postgres://host/orders', [], { host: 'other' }, { password: 'x' }, { pasword: 'x' }],
  },
  schema: { taken: ['my outbox', 'Ünïcode', undefined], refused: ['', 'x'.repeat(64), 'a\0b', 'pg_outbox', 5] },
  handlers: {
    taken: [{ 'order.paid': { mail: () => {} } }, { '*': { audit: () => {} } }],
    refused: [
      undefined,
      {},
      { 'order.paid': {} },
      { '': { mail: () => {} } },
      'handlers.ts',
      [() => {}],
      { 'order.paid': () => {} },
    ],
  },
  events: {
    taken: [undefined, defineEvents({ 'order.paid': {} })],
    refused: [null, {}, [], { 'order.paid': {} }, defineEvents({ 'order.sent': {} })],
  },
  unknownVersions: { taken: ['retry', 'deadLetter', 'deliver', undefined], refused: ['fail', 'dead_letter', true, 5] },
  destinations: {
    taken: [{}, undefined],
    refused: [
      'kafka',
      [],
      new Map(),
      { '': new ScriptedPublisher() },
      { 'a:b': new ScriptedPublisher() },
      { events: { publisher: new ScriptedPublisher(), probeDelayMs: 50_000 } },
      { events: {} },
      { events: { publisher: {} } },
      { events: { publisher: new ScriptedPublisher(), drainRate: 5 } },
      { events: { publisher: new ScriptedPublisher(), drainRateMax: 0 } },
      { events: { publisher: new ScriptedPublisher(), publishTimeoutMs: '5' } },
      { events: { publisher: new ScriptedPublisher(), serializer: {} } },
    ],
  },
  // Without destinations there is nothing to choose from.
  route: { taken: [undefined], refused: ['events', {}, () => null] },
  name: { taken: ['mail 1', 'x'.repeat(200)], refused: ['', 'x'.repeat(201), 'a\0b', 'a\ud800', 5, {}] },
  queues: {
    taken: [undefined, { default: 1 }, { default: 100, reports: 2, 'a.b-c_D9': 10_000 }, queuesNamed(100)],
    refused: [
      null,
      'default',
      ['default'],
      {},
      { '': 1 },
      { 'a b': 1 },
      { 'a:b': 1 },
      { ['x'.repeat(101)]: 1 },
      { default: 0 },
      { default: -1 },
      { default: Number.NaN },
      { default: 1.5 },
      { default: '5' },
      { default: Number.POSITIVE_INFINITY },
      { default: 10_001 },
      queuesNamed(101),
    ],
  },
  leaseMs: wholeNumbers(300, 3_600_000),
  heartbeatThread: { taken: [true, false], refused: ['false', 0, {}] },
  blockedMaxMs: wholeNumbers(100, 86_400_000),
  deliverTimeoutMs: wholeNumbers(1, 86_400_000),
  inFlightMax: wholeNumbers(1, 10_000),
  batchSizeMax: wholeNumbers(2, 5_000),
  prefetchMax: wholeNumbers(2, 100_000),
  inFlightBytesMax: wholeNumbers(65_536, 1_073_741_824),
  prefetchBytesMax: wholeNumbers(32_768, 1_073_741_824),
  loadBytesMax: wholeNumbers(16_384, 268_435_456),
  pollIntervalMs: wholeNumbers(10, 3_600_000),
  stopTimeoutMs: wholeNumbers(0, 3_600_000),
  retry: { taken: [{}, { delaysMs: [] }, { attemptsMax: 1 }], refused: [5, [1], { attempts: 3 }, { baseMs: -1 }] },
  poison: { taken: ['skip', 'block'], refused: ['ignore', '', true, 1] },
  noHandler: { taken: ['retry', 'fail'], refused: ['skip', '', false, 1] },
  listen: { taken: [true, false], refused: ['false', 0, {}] },
  maintenance: {
    taken: [
      false,
      {},
      undefined,
      { keepEventsMs: 0, keepProcessedMs: Number.POSITIVE_INFINITY, intervalMs: 100 },
      { keepEventsMs: Number.POSITIVE_INFINITY, skip: [] },
      { skip: ['rotate', 'drop', 'prune', 'processed', 'relays', 'analyze'] },
    ],
    refused: [
      true,
      null,
      'off',
      [],
      { keepEventsMs: -1 },
      { keepEventsMs: Number.NaN },
      { keepEventsMs: Number.NEGATIVE_INFINITY },
      { keepEventsMs: 0.5 },
      { keepEventsMs: '30d' },
      { keepEventsMs: 1e300 },
      { keepProcessedMs: null },
      { intervalMs: 0 },
      { intervalMs: Number.POSITIVE_INFINITY },
      { skip: 'prune' },
      { skip: ['vacuum'] },
      { skip: [undefined] },
      { keepEventMs: 1 },
    ],
  },
  schedules: {
    taken: [undefined, {}, { nightly: { cron: '0 3 * * *', event: { type: 'a', payload: null } } }],
    refused: [null, 'nightly', [], { '': { cron: '0 3 * * *', event: { type: 'a', payload: null } } }, { nightly: {} }],
  },
  metrics: { taken: [undefined, createMetrics()], refused: [null, {}, 'prometheus', true] },
  http: {
    taken: [undefined, { port: 0 }, { port: 9464, host: '0.0.0.0' }, { port: 9464, fetch: () => new Response() }],
    refused: [
      null,
      9464,
      {},
      { port: -1 },
      { port: 65_536 },
      { port: '80' },
      { port: 1, host: 5 },
      { port: 1, hots: '::' },
    ],
  },
  logger: {
    taken: [console, false, undefined],
    refused: ['console', true, {}, { ...console, warn: undefined }, () => {}],
  },
};

function queuesNamed(count: number): Record<string, number> {
  return Object.fromEntries(Array.from({ length: count }, (_, n) => [`q${n}`, 1]));
}

function wholeNumbers(min: number, max: number): { taken: unknown[]; refused: unknown[] } {
  const never = [
    Number.NaN,
    Number.POSITIVE_INFINITY,
    -1,
    min + 0.5,
    String(min),
    BigInt(min),
    {},
    true,
    new Date(min),
  ];
  return { taken: [min, max, undefined], refused: [min - 1, max + 1, ...never] };
}

const make = (option: string, value: unknown) => createRelay({ ...good, [option]: value } as RelayOptions);

describe.each(Object.entries(options))('%s', (option, { taken, refused }) => {
  test('takes what it should', () => {
    for (const value of taken) expect(() => make(option, value), shown(value)).not.toThrow();
  });

  test('refuses the rest by code, says which option it was, and never a password', () => {
    const codes: Record<string, string> = {
      schema: 'POSTCOMMIT_E_BAD_SCHEMA_NAME',
      schedules: 'POSTCOMMIT_E_BAD_SCHEDULE',
    };
    const code = codes[option] ?? 'POSTCOMMIT_E_BAD_OPTION';
    for (const value of refused) {
      expect(() => make(option, value), shown(value)).toThrow(
        expect.objectContaining({ name: 'PostcommitError', code, message: expect.stringContaining(option) }),
      );
      expect(() => make(option, value)).not.toThrow(/secret/);
    }
  });

  function shown(value: unknown): string {
    return typeof value === 'object' ? JSON.stringify(value) : `${typeof value} ${String(value)}`;
  }
});

describe('taken together', () => {
  test('prefetchMax below batchSizeMax is refused', () => {
    expect(() => createRelay({ ...good, prefetchMax: 10, batchSizeMax: 20 })).toThrow(
      expect.objectContaining({
        code: 'POSTCOMMIT_E_BAD_OPTION',
        message: expect.stringMatching(/prefetchMax.*batchSizeMax/),
      }),
    );
  });

  test('but either may be given alone', () => {
    expect(resolveOptions({ ...good, prefetchMax: 10 })).toMatchObject({ prefetchMax: 10, batchSizeMax: 10 });
    const { prefetchMax, batchSizeMax } = resolveOptions({ ...good, batchSizeMax: 5_000 });
    expect(batchSizeMax).toBe(5_000);
    expect(prefetchMax).toBeGreaterThanOrEqual(batchSizeMax);
  });

  test('limits in bytes suit the heap, and by default take every payload that an outbox lets in', () => {
    const { inFlightBytesMax, prefetchBytesMax, loadBytesMax } = resolveOptions(good);
    const heapBytesMax = getHeapStatistics().heap_size_limit;
    expect(inFlightBytesMax).toBe(Math.min(33_554_432, Math.floor(heapBytesMax / 8)));
    expect(prefetchBytesMax).toBe(inFlightBytesMax);
    expect(loadBytesMax).toBe(Math.min(2 * 67_108_864, Math.floor(heapBytesMax / 4)));
  });

  test('a misspelt option is refused, and the right ones are named', () => {
    const given = { ...good, inflightMax: 5 } as RelayOptions;
    expect(() => createRelay(given)).toThrow(
      expect.objectContaining({
        code: 'POSTCOMMIT_E_BAD_OPTION',
        message: expect.stringMatching(/inflightMax.*inFlightMax/),
      }),
    );
  });

  test.each(['connectionstring', 'db'])('%s instead of connectionString is named', (wrong) => {
    const { connectionString, ...rest } = good;
    expect(() => createRelay({ ...rest, [wrong]: connectionString } as RelayOptions)).toThrow(
      expect.objectContaining({
        code: 'POSTCOMMIT_E_BAD_OPTION',
        message: expect.stringMatching(new RegExp(`There is no option ${wrong}\\..*connectionString`)),
      }),
    );
  });

  test('destinations alone are enough, and schedules are not: something must take their events', () => {
    const { connectionString } = good;
    const nightly = { cron: '0 3 * * *', event: { type: 'a', payload: null } };
    expect(() => createRelay({ connectionString, destinations: { events: new ScriptedPublisher() } })).not.toThrow();
    for (const options of [{ connectionString }, { connectionString, schedules: { nightly } }]) {
      expect(() => createRelay(options)).toThrow(
        expect.objectContaining({
          code: 'POSTCOMMIT_E_BAD_OPTION',
          message: expect.stringContaining('handlers and destinations are empty'),
        }),
      );
    }
  });

  test('a handler is not named as the progress of a topic is', () => {
    const { connectionString } = good;
    const destinations = { kafka: new ScriptedPublisher() };
    const create = (type: string, name: string) => () =>
      createRelay({ connectionString, destinations, handlers: { [type]: { [name]: () => {} } } });
    for (const name of ['kafka', 'kafka:orders']) {
      expect(create('order.created', name)).toThrow(
        expect.objectContaining({
          code: 'POSTCOMMIT_E_BAD_OPTION',
          message: expect.stringMatching(new RegExp(`'${name}'.*Rename one`)),
        }),
      );
    }
    for (const name of ['kafka-orders', 'orders:kafka']) expect(create('order.created', name)).not.toThrow();
  });

  test('a text instead of a number is shown as a text', () => {
    expect(() => createRelay({ ...good, inFlightMax: '5' } as unknown as RelayOptions)).toThrow('Got "5".');
    expect(() => createRelay({ ...good, queues: { default: '5' } } as unknown as RelayOptions)).toThrow('Got "5".');
  });

  test.each([undefined, null, 'postgres://host/orders', 5])('%s is no set of options', (given) => {
    expect(() => createRelay(given as unknown as RelayOptions)).toThrow(
      expect.objectContaining({ code: 'POSTCOMMIT_E_BAD_OPTION' }),
    );
  });
});
