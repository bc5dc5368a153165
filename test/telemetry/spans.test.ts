import { createServer } from 'node:http';
import { context, propagation, SpanKind, SpanStatusCode, trace } from '@opentelemetry/api';
import {
  InMemorySpanExporter,
  NodeTracerProvider,
  type ReadableSpan,
  SimpleSpanProcessor,
} from '@opentelemetry/sdk-trace-node';
import { Kafka, logLevel } from 'kafkajs';
import { afterAll, afterEach, beforeAll, describe, expect, onTestFinished, test } from 'vitest';
import {
  createInbox,
  createOutbox,
  createRelay,
  fromPg,
  type Handlers,
  type Outbox,
  type Publisher,
} from '../../src/index.ts';
import { consumeKafka, kafka } from '../../src/publishers/kafka.ts';
import { inRemoteSpan } from '../../src/telemetry/spans.ts';
import { kafkaReader } from '../publishers/kafka-reader.ts';
import { endChild, startChild } from '../support/child.ts';
import { createTestDatabase, type TestDatabase } from '../support/database.ts';
import { fileService } from '../support/services.ts';
import { until } from '../support/wait.ts';

const broker = fileService('kafka');
const exporter = new InMemorySpanExporter();
const provider = new NodeTracerProvider({ spanProcessors: [new SimpleSpanProcessor(exporter)] });
let database: TestDatabase;
let outbox: Outbox<unknown>;

beforeAll(async () => {
  provider.register();
  database = await createTestDatabase();
  outbox = createOutbox({ db: fromPg(database.pool) }) as Outbox<unknown>;
});
afterEach(() => exporter.reset());
afterAll(async () => {
  await database.close();
  await provider.shutdown();
  trace.disable();
  context.disable();
  propagation.disable();
});

const emit = (count: number, headers = {}) =>
  trace.getTracer('test').startActiveSpan('request', async (span) => {
    const event = (n: number) => ({
      type: 'order.created',
      aggregate: ['order', n] as const,
      payload: 'secret',
      headers,
    });
    const ids = await outbox.transaction((_tx, emit) => emit(Array.from({ length: count }, (_, n) => event(n))));
    span.end();
    return ids;
  });

const named = (name: string) => exporter.getFinishedSpans().filter((span) => span.name === name);
const one = (name: string): ReadableSpan => {
  expect(named(name), name).toHaveLength(1);
  return named(name)[0] as ReadableSpan;
};

async function deliver(options: { handlers?: Handlers; destinations?: Record<string, Publisher> }): Promise<void> {
  await createRelay({
    connectionString: database.url,
    maintenance: false,
    logger: false,
    retry: { delaysMs: [1] },
    ...options,
  }).runOnce();
}

describe('the trace of an event', () => {
  test.each([false, true])(
    'emit and process are spans of the request, and the handler is in it; transactional %s',
    async (transactional) => {
      let seen: string | undefined;
      const [id] = await emit(1);
      const handle = () => {
        seen = trace.getActiveSpan()?.spanContext().spanId;
      };
      await deliver({ handlers: { 'order.created': { book: { handle, transactional } } } });
      const [request, emitted, processed] = [one('request'), one('emit order.created'), one('process order.created')];
      expect(emitted.kind).toBe(SpanKind.PRODUCER);
      expect(emitted.parentSpanContext?.spanId).toBe(request.spanContext().spanId);
      expect(processed.kind).toBe(SpanKind.CONSUMER);
      expect(processed.parentSpanContext?.spanId).toBe(emitted.spanContext().spanId);
      expect(processed.links.map((link) => link.context.spanId)).toEqual([emitted.spanContext().spanId]);
      expect(seen).toBe(processed.spanContext().spanId);
      expect(processed.attributes).toEqual({
        'messaging.system': 'postcommit',
        'messaging.operation.name': 'process',
        'messaging.operation.type': 'process',
        'messaging.destination.name': 'order.created',
        'messaging.message.id': id,
        'messaging.consumer.group.name': 'order.created:book',
      });
      expect(JSON.stringify(exporter.getFinishedSpans().map((span) => span.attributes))).not.toContain('secret');
    },
  );

  // A query of Knex or Drizzle is sent each time its `then` is called.
  test.each([false, true])(
    'a query that a handler returns runs once, in the span; transactional %s',
    async (transactional) => {
      const runs: (string | undefined)[] = [];
      const query = {
        // biome-ignore lint/suspicious/noThenProperty: as the builders of these clients are.
        then<T>(resolve: () => T, reject: (error: unknown) => T): Promise<T> {
          runs.push(trace.getActiveSpan()?.spanContext().spanId);
          return database.query('select 1').then(() => resolve(), reject);
        },
      };
      await emit(1);
      const handle = () => query as unknown as Promise<void>;
      await deliver({ handlers: { 'order.created': { book: { handle, transactional } } } });
      expect(runs).toEqual([one('process order.created').spanContext().spanId]);
    },
  );

  test('a handler that throws has a span with an error, and the next attempt another one', async () => {
    await emit(1);
    let calls = 0;
    const book = async () => {
      if (calls++ === 0) throw new Error('no stock');
    };
    await until(
      async () => {
        await deliver({ handlers: { 'order.created': { book } } });
        return calls === 2;
      },
      { what: 'it was tried again' },
    );
    const spans = named('process order.created');
    expect(spans.map(({ status }) => status.code)).toEqual([SpanStatusCode.ERROR, SpanStatusCode.UNSET]);
    expect(spans[0]?.status.message).toContain('no stock');
  });

  test('a batch handler has a span of its own that links to each event', async () => {
    await emit(3);
    await deliver({ handlers: { 'order.created': { all: { handleBatch: () => {}, batchSizeMax: 3 } } } });
    const processed = one('process order.created');
    expect(processed.attributes['messaging.batch.message_count']).toBe(3);
    expect(processed.parentSpanContext).toBeUndefined();
    const emitted = named('emit order.created').map((span) => span.spanContext().spanId);
    expect(processed.links.map((link) => link.context.spanId).sort()).toEqual(emitted.sort());
  });

  test('a context that the caller gives is the one that is used: no span emit', async () => {
    const traceparent = '00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01';
    await emit(1, { Traceparent: traceparent });
    await deliver({ handlers: { 'order.created': { book: () => {} } } });
    expect(named('emit order.created')).toEqual([]);
    expect(one('process order.created').spanContext().traceId).toBe(traceparent.split('-')[1]);
  });
});

test('a failure in tracing costs the trace only', async () => {
  const tracer = trace.getTracerProvider();
  const broken = new Proxy(tracer, {
    get: () => () => ({
      startSpan() {
        throw new Error('no spans today');
      },
    }),
  });
  trace.disable();
  trace.setGlobalTracerProvider(broken);
  onTestFinished(() => {
    trace.disable();
    trace.setGlobalTracerProvider(provider);
  });
  let calls = 0;
  const [id] = await outbox.transaction((_tx, emit) =>
    emit([{ type: 'order.created', aggregate: ['order', 'x'] as const, payload: null }]),
  );
  await deliver({ handlers: { 'order.created': { book: () => void calls++ } } });
  expect([typeof id, calls]).toEqual(['string', 1]);
});

describe('one trace', () => {
  test('from an HTTP request through emit and Kafka to a consumer in another process', async () => {
    const server = createServer(async (_request, response) => {
      await emit(1);
      response.end();
    });
    await new Promise<void>((ready) => server.listen(0, '127.0.0.1', ready));
    const { port } = server.address() as { port: number };
    const topic = `orders-${process.pid}`;
    const consumer = startChild('test/telemetry/kafka-consumer.child.ts', [broker.url, topic]);
    try {
      await consumer.next(({ event }) => event === 'ready', 60_000);
      await (await fetch(`http://127.0.0.1:${port}/orders`)).text();
      const relay = createRelay({
        connectionString: database.url,
        maintenance: false,
        destinations: { events: kafka({ brokers: [broker.url] }) },
        route: () => ({ to: 'events', topic }),
      });
      await relay.runOnce();
      const span = await consumer.next(({ event }) => event === 'span', 30_000);
      const [request, emitted, published] = [one('request'), one('emit order.created'), one(`publish ${topic}`)];
      const { traceId } = request.spanContext();
      expect([emitted, published].map((each) => each.spanContext().traceId)).toEqual([traceId, traceId]);
      expect(published.attributes).toMatchObject({ 'messaging.system': 'kafka', 'messaging.operation.type': 'send' });
      expect(published.links.map((link) => link.context.spanId)).toEqual([emitted.spanContext().spanId]);
      expect(span).toMatchObject({ name: 'work', traceId, parentSpanId: emitted.spanContext().spanId });
    } finally {
      server.close();
      await endChild(consumer);
    }
  });
});

describe('a consumer of a broker', () => {
  async function consumeOne(handle: () => unknown, attempts: number): Promise<{ topic: string; id: string }> {
    const topic = await kafkaReader(() => broker.url).createTopic({}, 1);
    const [id = ''] = await emit(1);
    const relay = createRelay({
      connectionString: database.url,
      maintenance: false,
      destinations: { events: kafka({ brokers: [broker.url] }) },
      route: () => ({ to: 'events', topic }),
    });
    await relay.runOnce();
    const consumer = consumeKafka({
      consumer: new Kafka({ brokers: [broker.url], logLevel: logLevel.NOTHING }).consumer({ groupId: topic }),
      topics: [topic],
      fromBeginning: true,
      deadLetter: 'skip',
      retry: { delaysMs: [1] },
      logger: { debug() {}, info() {}, warn() {}, error() {} },
      inbox: createInbox({ db: fromPg(database.pool) }).consumer(topic),
      handle,
    });
    onTestFinished(() => consumer.stop());
    await consumer.start();
    await until(() => named(`process ${topic}`).length === attempts, { what: 'its spans', timeoutMs: 30_000 });
    return { topic, id };
  }

  test('has a span process that continues the trace of the message, and the handler runs in it', async () => {
    let seen: string | undefined;
    const { topic, id } = await consumeOne(() => {
      seen = trace.getActiveSpan()?.spanContext().spanId;
    }, 1);
    const [emitted, processed] = [one('emit order.created'), one(`process ${topic}`)];
    expect(processed.kind).toBe(SpanKind.CONSUMER);
    expect(processed.spanContext().traceId).toBe(emitted.spanContext().traceId);
    expect(processed.parentSpanContext?.spanId).toBe(emitted.spanContext().spanId);
    expect(processed.links.map((link) => link.context.spanId)).toEqual([emitted.spanContext().spanId]);
    expect(seen).toBe(processed.spanContext().spanId);
    expect(processed.status.code).toBe(SpanStatusCode.UNSET);
    expect(processed.attributes).toEqual({
      'messaging.system': 'kafka',
      'messaging.operation.name': 'process',
      'messaging.operation.type': 'process',
      'messaging.destination.name': topic,
      'messaging.destination.partition.id': '0',
      'messaging.kafka.offset': 0,
      'messaging.message.id': id,
      'messaging.consumer.group.name': topic,
    });
  });

  test('has a span with an error for an attempt that fails, and another one for the next', async () => {
    let calls = 0;
    const { topic } = await consumeOne(async () => {
      if (calls++ === 0) throw new Error('no stock');
    }, 2);
    const spans = named(`process ${topic}`);
    expect(spans.map(({ status }) => status.code)).toEqual([SpanStatusCode.ERROR, SpanStatusCode.UNSET]);
    expect(spans[0]?.status.message).toContain('no stock');
    expect(new Set(spans.map((span) => span.parentSpanContext?.spanId)).size).toBe(1);
  });

  test('has the active span as parent if that is of the same trace, and the span of the message otherwise', async () => {
    const parents: (string | undefined)[] = [];
    const other = '00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01';
    await trace.getTracer('test').startActiveSpan('client', async (span) => {
      const { traceId, spanId } = span.spanContext();
      const operation = { name: 'process' as const, system: 'kafka', destination: 'orders' };
      for (const traceparent of [`00-${traceId}-b7ad6b7169203331-01`, other]) {
        await inRemoteSpan(operation, { id: 'x', headers: { traceparent } }, async () => {});
      }
      span.end();
      parents.push(spanId, 'b7ad6b7169203331');
    });
    expect(named('process orders').map((span) => span.parentSpanContext?.spanId)).toEqual(parents);
  });
});
