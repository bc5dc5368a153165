import { Kafka, logLevel, type Producer } from 'kafkajs';
import { afterAll, beforeAll, describe, expect, onTestFinished, test } from 'vitest';
import { consumeKafka } from '../../src/publishers/kafka.ts';
import { kafkaReader } from '../publishers/kafka-reader.ts';
import { fileService } from '../support/services.ts';
import { deferred, until, within } from '../support/wait.ts';
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

describe('with a run of your own', () => {
  async function running(topic: string, mode: 'eachBatch' | 'eachMessage', handle: (n: number) => unknown) {
    const orders = consumeKafka({
      deadLetter: 'skip',
      logger: silent,
      handle: (event) => handle((event.payload as { n: number }).n),
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

  test('start needs the consumer', async () => {
    const orders = consumeKafka({ deadLetter: 'skip', handle() {} });
    await expect(orders.start()).rejects.toMatchObject({ code: 'POSTCOMMIT_E_BAD_OPTION' });
  });
});
