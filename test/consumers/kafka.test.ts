import { connect, type Socket } from 'node:net';
import { type ConsumerConfig, Kafka, logLevel, type Producer } from 'kafkajs';
import { afterAll, beforeAll, describe, expect, onTestFinished, test } from 'vitest';
import { consumeKafka } from '../../src/publishers/kafka.ts';
import { kafkaReader } from '../publishers/kafka-reader.ts';
import { fileService } from '../support/services.ts';
import { deferred, nextEvent, until, within } from '../support/wait.ts';
import { type ConsumerScene, envelopeOf, silent, testConsumer } from './consumer-suite.ts';

const server = fileService('kafka');
let kafka: Kafka;
let producer: Producer;
beforeAll(async () => {
  kafka = new Kafka({ brokers: [server.url], logLevel: logLevel.NOTHING });
  producer = kafka.producer();
  await producer.connect();
});
afterAll(() => producer?.disconnect());

async function createScene(): Promise<ConsumerScene> {
  const reader = kafkaReader(() => server.url);
  const [topic, dead] = [await reader.createTopic({}, 1), await reader.createTopic({}, 1)];
  return {
    consumer: (options) =>
      consumeKafka({
        ...options,
        consumer: kafka.consumer({ groupId: topic, maxWaitTimeInMs: 50, heartbeatInterval: 300 }),
        topics: [topic],
        fromBeginning: true,
        deadLetter: { producer, topic: dead },
      }),
    async publish(messages) {
      await producer.send({
        topic,
        messages: messages.map(({ key, body, headers }) => ({ key, value: body as string, headers })),
      });
    },
    async deadLetters(count) {
      const letters = await reader.read(dead, count);
      return letters.map(({ body, headers }) => ({ body, reason: headers['dead-letter-reason'] }));
    },
  };
}

testConsumer('Kafka', createScene);

type Handle = (n: number, signal: AbortSignal) => unknown;

describe('with a run of your own', () => {
  async function running(topic: string, mode: 'eachBatch' | 'eachMessage', handle: Handle) {
    const orders = consumeKafka({
      deadLetter: 'skip',
      logger: silent,
      stopTimeoutMs: 500,
      handle: (event, { signal }) => handle((event.payload as { n: number }).n, signal),
    });
    const client = kafka.consumer({ groupId: topic, maxWaitTimeInMs: 50, heartbeatInterval: 300 });
    onTestFinished(() => client.disconnect());
    await client.connect();
    await client.subscribe({ topics: [topic], fromBeginning: true });
    const each = orders[mode] as typeof orders.eachBatch & typeof orders.eachMessage;
    await client.run({ eachBatchAutoResolve: false, [mode]: each });
    return { orders, client };
  }

  test.each(['eachBatch', 'eachMessage'] as const)(
    'stop ends %s: handlers in flight finish, no other begins, and the rest stays in Kafka',
    async (mode) => {
      const topic = await kafkaReader(() => server.url).createTopic({}, 1);
      const messages = [0, 1, 2].map((n) => envelopeOf('a', n));
      await producer.send({
        topic,
        messages: messages.map(({ key, body, headers }) => ({ key, value: body as string, headers })),
      });
      const [started, finish] = [deferred(), deferred()];
      const first: number[] = [];
      const { orders, client } = await running(topic, mode, async (n) => {
        started.resolve();
        await finish.promise;
        first.push(n);
      });
      await within(started.promise, { what: 'the first one is in flight', timeoutMs: 30_000 });
      let isStopped = false;
      const stopped = orders.stop().then(() => {
        isStopped = true;
      });
      await until(() => orders.stats().state === 'stopping', { what: 'it is stopping' });
      expect(isStopped).toBe(false);
      finish.resolve();
      await within(stopped, { what: 'it has stopped' });
      expect(first).toEqual([0]);
      expect(orders.stats()).toMatchObject({ state: 'idle', processed: 1, inFlight: 0, waiting: 0 });
      await client.disconnect();
      expect(first).toEqual([0]);

      const second: number[] = [];
      await running(topic, mode, (n) => void second.push(n));
      await until(() => second.length === 2, { what: 'the rest is processed', timeoutMs: 30_000 });
      expect(second).toEqual([1, 2]);
    },
  );

  test('stop aborts the signals of handlers that take longer than stopTimeoutMs', async () => {
    const topic = await kafkaReader(() => server.url).createTopic({}, 1);
    const { key, body, headers } = envelopeOf('a', 0);
    await producer.send({ topic, messages: [{ key, value: body as string, headers }] });
    const started = deferred<AbortSignal>();
    const { orders } = await running(topic, 'eachBatch', (_n, signal) => {
      started.resolve(signal);
      return new Promise(() => {});
    });
    const signal = await within(started.promise, { what: 'it is in flight', timeoutMs: 30_000 });
    await within(orders.stop(), { what: 'it has stopped' });
    expect(signal.reason).toMatchObject({ code: 'POSTCOMMIT_E_CONSUMER_STOPPING' });
    expect(orders.stats()).toMatchObject({ state: 'idle', inFlight: 0, released: 1 });
  });

  test('start needs the consumer', async () => {
    const orders = consumeKafka({ deadLetter: 'skip', handle() {} });
    await expect(orders.start()).rejects.toMatchObject({ code: 'POSTCOMMIT_E_BAD_OPTION' });
  });
});

test('an idempotent producer of kafkajs, which loses dead letters after a failure, is refused', () => {
  const consume = (made: object) =>
    consumeKafka({ deadLetter: { producer: made as Producer, topic: 'dead' }, handle() {} });
  expect(() => consume(kafka.producer({ idempotent: true }))).toThrow(
    expect.objectContaining({
      code: 'POSTCOMMIT_E_BAD_OPTION',
      detail: expect.stringContaining('idempotent producer of kafkajs'),
    }),
  );
  consume(kafka.producer());
  // That of @confluentinc/kafka-javascript, which gives sequence numbers out once.
  consume({ send() {}, isIdempotent: () => true, dependentAdmin() {} });
});

describe('when the client of Kafka fails', () => {
  /** A client whose connections a test can break, refuse and keep from receiving. */
  function createClient(config: Omit<ConsumerConfig, 'groupId'> = {}) {
    const open = new Set<Socket>();
    const lines: string[] = [];
    let isDown = false;
    let isSilent = false;
    const client = new Kafka({
      brokers: [server.url],
      logLevel: logLevel.INFO,
      logCreator:
        () =>
        ({ log: { message } }) =>
          void lines.push(message),
      // kafkajs notices a broken connection with its next request.
      requestTimeout: 2_000,
      retry: { retries: 1, initialRetryTime: 50 },
      socketFactory({ host, port, onConnect }) {
        // No server listens on port 1.
        const socket = connect({ host, port: isDown ? 1 : port }, onConnect);
        if (isSilent) socket.pause();
        open.add(socket);
        socket.once('close', () => open.delete(socket));
        return socket;
      },
    });
    return {
      create: (groupId: string) => client.consumer({ groupId, maxWaitTimeInMs: 50, heartbeatInterval: 300, ...config }),
      connections: () => open.size,
      breakDown() {
        isDown = true;
        for (const socket of open) socket.destroy(new Error('cut'));
      },
      /** The broker seems to answer nothing, and no connection ends. */
      fallSilent() {
        isSilent = true;
        for (const socket of open) socket.pause();
      },
      recover() {
        isDown = false;
        isSilent = false;
        for (const socket of open) socket.resume();
      },
      lines,
    };
  }

  const consume = (client: ReturnType<typeof createClient>, topic: string) => {
    const consumer = consumeKafka({
      consumer: client.create(topic),
      topics: [topic],
      fromBeginning: true,
      deadLetter: 'skip',
      logger: silent,
      handle() {},
    });
    onTestFinished(() => consumer.stop());
    return consumer;
  };

  test('start disconnects when the subscription fails', async () => {
    const client = createClient();
    const consumer = consume(client, 'not a topic');
    await expect(consumer.start()).rejects.toThrow();
    expect(consumer.stats().state).toBe('idle');
    await until(() => client.connections() === 0, { what: 'its connections are closed' });
  });

  test('start fails when the group does not take the consumer', async () => {
    const topic = await kafkaReader(() => server.url).createTopic({}, 1);
    // Less than the broker allows.
    const client = createClient({ sessionTimeout: 100, heartbeatInterval: 50 });
    const consumer = consume(client, topic);
    await expect(consumer.start()).rejects.toThrow(/session timeout/i);
    expect(consumer.stats().state).toBe('idle');
    await until(() => client.connections() === 0, { what: 'its connections are closed' });
  });

  test('a client that restarts reports disconnected, and goes on', async () => {
    const topic = await kafkaReader(() => server.url).createTopic({}, 1);
    const client = createClient();
    const consumer = consume(client, topic);
    await consumer.start();
    const disconnected = nextEvent<{ error: string }>(consumer, 'disconnected', 30_000);
    client.breakDown();
    expect(await disconnected).toMatchObject({ error: expect.any(String) });
    expect(consumer.stats().state).toBe('running');
    client.recover();
    const { key, body, headers } = envelopeOf('a', 0);
    await producer.send({ topic, messages: [{ key, value: body as string, headers }] });
    await until(() => consumer.stats().processed === 1, { what: 'it is processed', timeoutMs: 30_000 });
  });

  test('a client that gives up leaves the consumer idle, and start begins again', async () => {
    const topic = await kafkaReader(() => server.url).createTopic({}, 1);
    const client = createClient({ retry: { retries: 1, initialRetryTime: 50, restartOnFailure: async () => false } });
    const consumer = consume(client, topic);
    await consumer.start();
    const crashed = nextEvent<{ error: string }>(consumer, 'crashed', 30_000);
    client.breakDown();
    expect(await crashed).toMatchObject({ error: expect.any(String) });
    expect(consumer.stats().state).toBe('idle');
    client.recover();
    await consumer.start();
    const { key, body, headers } = envelopeOf('a', 0);
    await producer.send({ topic, messages: [{ key, value: body as string, headers }] });
    await until(() => consumer.stats().processed === 1, { what: 'it is processed', timeoutMs: 30_000 });
  });

  test('stop while the client handles a crash leaves nothing behind that restarts', async () => {
    const topic = await kafkaReader(() => server.url).createTopic({}, 1);
    const client = createClient();
    const consumer = consume(client, topic);
    const logged = (text: string) =>
      until(() => client.lines.some((line) => line.startsWith(text)), {
        what: `the client has logged "${text}"`,
        timeoutMs: 30_000,
      });
    await consumer.start();
    await logged('Consumer has joined the group');
    client.lines.length = 0;
    client.fallSilent();
    await logged('Crash: ');
    // It leaves the group, for which the broker has requestTimeout, and sets the timer of its restart after that.
    await within(consumer.stop(), { what: 'it has stopped', timeoutMs: 30_000 });
    await logged('Restarting the consumer');
    const restarting = client.lines.findIndex((line) => line.startsWith('Restarting the consumer'));
    const next = await until(() => client.lines[restarting + 1], { what: 'the client has restarted, or ended' });
    expect(next).toBe('Stopped');
    client.recover();
    await until(() => client.connections() === 0, { what: 'its connections are closed' });
  });
});
