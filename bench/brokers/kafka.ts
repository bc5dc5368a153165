import { randomUUID } from 'node:crypto';
import kafkajs from 'kafkajs';
import { type Broker, chunked, timed } from './broker.ts';

const clientOf = (url: string) => new kafkajs.Kafka({ brokers: [url], logLevel: kafkajs.logLevel.NOTHING });

/** As many as the publisher takes. One request at a time: a second one could overtake it, and the order of a key be lost. */
const batchSize = 1_000;

export const kafka: Broker = {
  name: 'kafka',
  service: 'kafka',
  client: 'kafkajs',
  goal: 0.7,
  nextGoal: 0.85,
  share: 4,
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
    const producer = clientOf(url).producer({ idempotent: true, maxInFlightRequests: 1 });
    await producer.connect();
    const tookMs = await timed(chunked(events, batchSize), 1, (chunk) => {
      const messages = chunk.map((event) => {
        const { key, body, headers, contentType } = event.toMessage();
        return { key, value: body as string, headers: { ...headers, 'content-type': contentType } };
      });
      return producer.sendBatch({ acks: -1, topicMessages: [{ topic, messages }] });
    });
    await producer.disconnect();
    return tookMs;
  },
};
