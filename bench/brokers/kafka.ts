import { randomUUID } from 'node:crypto';
import kafkajs from 'kafkajs';
import { type Broker, chunked, timed } from './broker.ts';

const clientOf = (url: string) => new kafkajs.Kafka({ brokers: [url], logLevel: kafkajs.logLevel.NOTHING });

/** As the publisher does it by default: larger batches and more producers were no faster (docs/publishers/kafka.md). */
const batchSize = 500;
const producers = 1;

export const kafka: Broker = {
  name: 'kafka',
  service: 'kafka',
  client: 'kafkajs',
  goal: 0.7,
  share: 1,
  async createTopic(url) {
    const topic = `bench-${randomUUID()}`;
    const admin = clientOf(url).admin();
    await admin.connect();
    await admin.createTopics({ topics: [{ topic, numPartitions: 6 }], waitForLeaders: true });
    await admin.disconnect();
    return topic;
  },
  async removeTopic(url, topic) {
    const admin = clientOf(url).admin();
    await admin.connect();
    await admin.deleteTopics({ topics: [topic] });
    await admin.disconnect();
  },
  async createPublisher(url) {
    const { kafka } = await import(new URL('../../dist/publishers/kafka.js', import.meta.url).href);
    return kafka({ brokers: [url] });
  },
  async publishAll(url, topic, events) {
    const open = await Promise.all(
      Array.from({ length: producers }, async () => {
        const producer = clientOf(url).producer({ idempotent: true });
        await producer.connect();
        return producer;
      }),
    );
    const free = [...open];
    const tookMs = await timed(chunked(events, batchSize), producers, async (chunk) => {
      const producer = free.pop();
      if (!producer) throw new Error('No producer is free.');
      const messages = chunk.map((event) => {
        const { key, body, headers, contentType } = event.toMessage();
        return { key, value: body as string, headers: { ...headers, 'content-type': contentType } };
      });
      await producer.sendBatch({ acks: -1, topicMessages: [{ topic, messages }] });
      free.push(producer);
    });
    await Promise.all(open.map((producer) => producer.disconnect()));
    return tookMs;
  },
};
