import { Kafka, logLevel, type Producer } from 'kafkajs';
import { afterAll, beforeAll } from 'vitest';
import { consumeKafka } from '../../src/publishers/kafka.ts';
import { kafkaReader } from '../publishers/kafka-reader.ts';
import { fileService } from '../support/services.ts';
import { type ConsumerScene, testConsumer } from './consumer-suite.ts';

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
