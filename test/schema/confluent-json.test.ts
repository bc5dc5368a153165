import { createServer, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { describe, expect, onTestFinished, test } from 'vitest';
import { z } from 'zod';
import { type ConfluentJsonOptions, confluentJson, defineEvents, readMessage, Unavailable } from '../../src/index.ts';
import type { Serialized } from '../../src/wire/serializer.ts';
import { withScenario } from '../support/relay-scenario.ts';
import { ScriptedPublisher } from '../support/scripted-publisher.ts';
import { until } from '../support/wait.ts';
import { deliveredEvent } from '../wire/event.ts';

const events = defineEvents({
  'order.created': {
    version: 2,
    schema: z.object({ total: z.number() }),
    upcast: { 1: (v1: { price: number }) => ({ total: v1.price }) },
  },
  'order.paid': { schema: z.object({ by: z.string() }) },
});
const binding = { cloudEventsPrefix: 'ce_', topic: 'orders' };

/** As much of a registry as a serializer needs. The real one is in confluent-json-registry.test.ts. */
class FakeRegistry {
  readonly requests: string[] = [];
  readonly ids = new Map<string, number>();
  /** The status of every response, if it is set. */
  status: number | undefined;
  #server: Server | undefined;
  #port = 0;
  #nextId = 258;

  get url(): string {
    return `http://127.0.0.1:${this.#port}`;
  }

  static async start(): Promise<FakeRegistry> {
    const registry = new FakeRegistry();
    await registry.start();
    onTestFinished(() => registry.stop());
    return registry;
  }

  /** On the same port as before. */
  async start(): Promise<void> {
    this.#server = createServer((request, response) => {
      const path = decodeURIComponent(request.url ?? '');
      this.requests.push(path);
      let body = '';
      request.on('data', (chunk) => {
        body += chunk;
      });
      request.on('end', () => {
        if (request.method === 'GET') return void response.writeHead(this.status ?? 200).end('["JSON"]');
        if (path.startsWith('/subjects/forbidden')) {
          return void response.writeHead(403).end(JSON.stringify({ error_code: 40301, message: 'no right' }));
        }
        const name = `${path.replace(/\/versions$/, '')} ${JSON.parse(body).schema}`;
        if (path.endsWith('/versions') && !this.ids.has(name)) this.ids.set(name, this.#nextId++);
        const id = this.ids.get(name);
        const status = this.status ?? (id === undefined ? 404 : 200);
        response.writeHead(status).end(JSON.stringify(status === 200 ? { id } : { error_code: 40403, message: 'no' }));
      });
    });
    await new Promise<void>((resolve) => this.#server?.listen(this.#port, '127.0.0.1', resolve));
    this.#port = (this.#server.address() as AddressInfo).port;
  }

  async stop(): Promise<void> {
    this.#server?.closeAllConnections();
    await new Promise((resolve) => this.#server?.close(resolve));
  }
}

const bodyOf = (serialized: Serialized) => Buffer.from(serialized.body);

describe('the frame', () => {
  test('is a zero byte, the id of the schema in four bytes, and the payload as it is stored', async () => {
    const registry = await FakeRegistry.start();
    const serializer = confluentJson({ registry: registry.url, events, register: true });
    const event = deliveredEvent({ payloadJson: '{"total": 12345678901234567890, "name": "ü"}' });
    const serialized = await serializer.serialize(event, binding);
    expect(bodyOf(serialized).subarray(0, 5)).toEqual(Buffer.from([0, 0, 0, 1, 2]));
    expect(bodyOf(serialized).subarray(5).toString()).toBe(event.payloadJson);
    expect(serialized.contentType).toBe('application/octet-stream');
    expect(readMessage({ ...serialized, headers: serialized.headers ?? {} })).toMatchObject({
      id: event.id,
      type: 'order.created',
      schemaVersion: 2,
      payload: { name: 'ü' },
      aggregate: { type: 'order', id: '42' },
      key: '42',
      seq: '7',
    });
  });

  test('has the newest version: older payloads go through the upcasts', async () => {
    const registry = await FakeRegistry.start();
    const serializer = confluentJson({ registry: registry.url, events, register: true });
    const serialized = await serializer.serialize(
      deliveredEvent({ schemaVersion: 1, payloadJson: '{"price":3}' }),
      binding,
    );
    expect(bodyOf(serialized).subarray(5).toString()).toBe('{"total":3}');
    expect(serialized.headers).toMatchObject({ 'schema-version': '2' });
  });

  test('is not taken for JSON, nor JSON for it', () => {
    const headers = { 'event-id': deliveredEvent().id, 'event-type': 't' };
    const frame = (...bytes: number[]) => ({ body: Uint8Array.from(bytes), headers });
    expect(readMessage(frame(0, 0, 0, 0, 7, 0x31)).payload).toBe(1);
    expect(readMessage(frame(0x31, 0x30, 0x30, 0x30, 0x30, 0x31)).payload).toBe(100_001);
    // Avro, or the index of a Protobuf message; no payload; too short; a text, which has lost the bytes of the id.
    for (const message of [
      frame(0, 0, 0, 0, 7, 0, 0x31),
      frame(0, 0, 0, 0, 7),
      frame(0, 0, 0, 7),
      { body: '\0\0\0\0\u00071', headers },
    ]) {
      expect(() => readMessage(message)).toThrow(expect.objectContaining({ code: 'POSTCOMMIT_E_BAD_MESSAGE' }));
    }
  });
});

describe('ids', () => {
  test('are asked for once per subject and type, by all that wait together, and are then there without a promise', async () => {
    const registry = await FakeRegistry.start();
    const serializer = confluentJson({ registry: registry.url, events, register: true, subject: '{topic}-value' });
    const [first, second] = await Promise.all([1, 2].map(() => serializer.serialize(deliveredEvent(), binding)));
    expect(first?.body).toEqual(second?.body);
    expect(serializer.serialize(deliveredEvent(), binding)).toMatchObject({ body: first?.body });
    await serializer.serialize(deliveredEvent({ type: 'order.paid', schemaVersion: 1 }), binding);
    await serializer.serialize(deliveredEvent(), { ...binding, topic: 'other' });
    expect(registry.requests).toEqual([
      '/subjects/orders-value/versions',
      '/subjects/orders-value/versions',
      '/subjects/other-value/versions',
    ]);
  });

  test('are bounded: the least recently used is asked for again', async () => {
    const registry = await FakeRegistry.start();
    const serializer = confluentJson({
      registry: registry.url,
      events,
      register: true,
      idsMax: 2,
      subject: '{topic}-{type}',
    });
    for (const topic of ['a', 'b', 'a', 'c', 'a', 'b'])
      await serializer.serialize(deliveredEvent(), { ...binding, topic });
    expect(registry.requests.map((path) => path.slice(10, 11))).toEqual(['a', 'b', 'c', 'b']);
  });

  test('are looked up only, unless schemas are to be registered', async () => {
    const registry = await FakeRegistry.start();
    const subject = (event: { type: string }) => event.type;
    const serializer = confluentJson({ registry: registry.url, events });
    const missing = { code: 'POSTCOMMIT_E_SCHEMA_NOT_REGISTERED', detail: expect.stringContaining('order.created') };
    for (let round = 0; round < 3; round++) {
      await expect(serializer.serialize(deliveredEvent(), binding)).rejects.toMatchObject(missing);
    }
    expect(registry.requests).toEqual(['/subjects/order.created']);
    const registering = confluentJson({ registry: registry.url, events, subject, register: true });
    const registered = await registering.serialize(deliveredEvent(), binding);
    const asksAgain = async () =>
      (await Promise.resolve(serializer.serialize(deliveredEvent(), binding)).catch(() => undefined)) !== undefined;
    await until(asksAgain, { what: 'the schema is found' });
    expect(await serializer.serialize(deliveredEvent(), binding)).toEqual(registered);
  });

  test('a registry that is down, overloaded or rejects the credentials is unavailable, and healthy when it answers', async () => {
    const registry = await FakeRegistry.start();
    const serializer = confluentJson({ registry: registry.url, events, register: true });
    const attempt = async () => serializer.serialize(deliveredEvent(), binding);
    const health = async () => serializer.health?.(new AbortController().signal);
    await health(); // It needs nothing yet.
    expect(registry.requests).toEqual([]);
    for (const status of [503, 429, 401, 403]) {
      registry.status = status;
      await expect(attempt()).rejects.toBeInstanceOf(Unavailable);
      await expect(health()).rejects.toThrow(`it answers with status ${status}`);
    }
    await registry.stop();
    await expect(attempt()).rejects.toBeInstanceOf(Unavailable);
    await expect(health()).rejects.toThrow('ECONNREFUSED');
    registry.status = undefined;
    await registry.start();
    await health();
    expect(await serializer.serialize(deliveredEvent(), binding)).toMatchObject({ body: expect.anything() });
    await registry.stop();
    await health(); // It has the only id that it needs.
  });
});

test('a subject that the registry refuses to this user does not make the registry unhealthy', async () => {
  const registry = await FakeRegistry.start();
  const serializer = confluentJson({ registry: registry.url, events, register: true, subject: () => 'forbidden' });
  await expect((async () => serializer.serialize(deliveredEvent(), binding))()).rejects.toBeInstanceOf(Unavailable);
  await serializer.health?.(new AbortController().signal);
  expect(registry.requests.at(-1)).toBe('/schemas/types');
});

test.each<[string, Partial<ConfluentJsonOptions>]>([
  ['no events', { events: undefined as never }],
  ['events that are no catalogue', { events: {} as never }],
  ['an invalid URL', { registry: 'localhost:8081' }],
  ['a subject that is neither a pattern nor a function', { subject: 7 as never }],
  ['a subject with an unknown placeholder', { subject: '{record}' }],
  ['a subject with a placeholder that does not end', { subject: 'orders-{type' }],
  ['an unknown option', { registerSchemas: true } as never],
  ['no time', { timeoutMs: 0 }],
  ['no ids', { idsMax: 0 }],
])('refuses %s', (_what, options) => {
  expect(() => confluentJson({ registry: 'http://localhost:8081', events, ...options })).toThrow(
    expect.objectContaining({ code: 'POSTCOMMIT_E_BAD_OPTION' }),
  );
});

describe('in a relay', () => {
  const relayOptions = (registry: FakeRegistry, publisher: ScriptedPublisher) => ({
    handlers: {},
    pollIntervalMs: 50,
    retry: { delaysMs: [10] },
    destinations: {
      events: {
        publisher,
        serializer: confluentJson({ registry: registry.url, events, register: true }),
        probeDelayMs: 50,
        probeDelayMsMax: 100,
      },
    },
    route: () => ({ to: 'events', topic: 'orders' }),
  });
  const order = (n: number) => ({
    aggregateId: `o${n % 5}`,
    type: 'order.created',
    schemaVersion: 2,
    payload: { total: n },
  });

  test(
    'a registry that is down and comes up again: nothing lost, no attempt, order kept',
    withScenario(async (scenario) => {
      const registry = await FakeRegistry.start();
      await registry.stop();
      const publisher = new ScriptedPublisher();
      await scenario.emit(Array.from({ length: 200 }, (_, n) => order(n)));
      const relay = scenario.idleRelay('r', relayOptions(registry, publisher));
      const told: string[] = [];
      relay.on('destinationDown', ({ error }) => told.push(error));
      await relay.start();
      await until(() => told.length > 0, { what: 'the outage is noticed' });
      expect(told[0]).toContain('Schema registry');
      await registry.start();
      await until(() => relay.stats().delivered === 200, { what: 'all have arrived', timeoutMs: 20_000 });
      const totals = publisher.received.map(({ body }) => JSON.parse(Buffer.from(body).subarray(5).toString()).total);
      for (let key = 0; key < 5; key++) {
        const expected = Array.from({ length: 40 }, (_, n) => 5 * n + key);
        expect(totals.filter((total) => total % 5 === key)).toEqual(expected);
      }
      expect(relay.stats()).toMatchObject({ failed: 0, deadLettered: 0 });
      expect(await scenario.db.query('select from postcommit.outbox_failures')).toEqual([]);
      expect(registry.requests.length).toBeGreaterThan(0);
    }),
  );

  test(
    'an event of a newer version than the catalogue waits for a relay that knows it, without an attempt',
    withScenario(async (scenario) => {
      const registry = await FakeRegistry.start();
      const publisher = new ScriptedPublisher();
      const relay = scenario.idleRelay('r', relayOptions(registry, publisher));
      await scenario.emit([{ ...order(0), schemaVersion: 3 }, order(5), order(1)]);
      await relay.runOnce();
      expect(publisher.received.map(({ key }) => key)).toEqual(['o1']);
      expect(
        await scenario.db.query('select owed, attempts from postcommit.outbox_queue order by seq limit 1'),
      ).toEqual([{ owed: ['events'], attempts: 0 }]);
      expect(await scenario.db.query('select from postcommit.outbox_failures')).toEqual([]);
    }),
  );
});
