import { randomUUID } from 'node:crypto';
import { type Admin, Kafka, logLevel, type RecordBatchEntry } from 'kafkajs';
import type { ReceivedMessage } from '../../src/testing/publisher-conformance.ts';
import { until, within } from '../support/wait.ts';

export interface KafkaReader {
  createTopic(configuration?: Record<string, string>, partitions?: number): Promise<string>;
  /** Deletes the topic with all that is in it, and creates one of the same name. */
  recreateTopic(topic: string, partitions: number, whileGone?: () => Promise<unknown>): Promise<void>;
  /** Everything that is in the topic, once it is `count` records or more; in order within a partition. */
  read(topic: string, count: number): Promise<ReceivedMessage[]>;
  /** How many records the topic has. */
  count(topic: string): Promise<number>;
}

/** What a consumer sees, with a client of its own. */
export function kafkaReader(brokers: () => string): KafkaReader {
  const connect = () => new Kafka({ brokers: [brokers()], clientId: 'reader', logLevel: logLevel.NOTHING });
  // A new client each time: kafkajs asks for all topics it ever saw, and fails when one of them is gone.
  const asAdmin = async <T>(work: (admin: Admin) => Promise<T>) => {
    const admin = connect().admin();
    await admin.connect();
    return work(admin).finally(() => admin.disconnect());
  };
  /** Returns how many there are, once there are `wanted`. Asks again while the topic has no leader. */
  const countAtLeast = (topic: string, wanted: number) =>
    asAdmin(async (admin) => {
      const isThere = async () => {
        const total = await countIn(admin, topic);
        return total >= wanted && { total };
      };
      return (await until(isThere, { what: `${wanted} records in ${topic}`, timeoutMs: 20_000 })).total;
    });
  const count = (topic: string) => asAdmin((admin) => countIn(admin, topic));

  const create = async (topic: string, numPartitions: number, configuration: Record<string, string> = {}) => {
    const configEntries = Object.entries(configuration).map(([name, value]) => ({ name, value }));
    const topics = [{ topic, numPartitions, configEntries }];
    // Its own waiting fails when it asks too early.
    await asAdmin((admin) => admin.createTopics({ topics, waitForLeaders: false }));
    await countAtLeast(topic, 0);
  };

  return {
    count,
    async createTopic(configuration = {}, partitions = 3) {
      const topic = `orders.${randomUUID()}`;
      await create(topic, partitions, configuration);
      return topic;
    },
    async recreateTopic(topic, partitions, whileGone) {
      await asAdmin(async (admin) => {
        await admin.deleteTopics({ topics: [topic] });
        await until(async () => !(await admin.listTopics()).includes(topic), { what: `${topic} is deleted` });
      });
      await whileGone?.();
      await create(topic, partitions);
    },
    async read(topic, wanted) {
      const total = await countAtLeast(topic, wanted);
      if (total === 0) return [];
      const consumer = connect().consumer({ groupId: randomUUID(), maxWaitTimeInMs: 100 });
      try {
        await consumer.connect();
        await consumer.subscribe({ topic, fromBeginning: true });
        const received: ReceivedMessage[] = [];
        const all = new Promise<void>((resolve) => {
          const eachMessage = async ({ message }: { message: unknown }) => {
            received.push(toReceived(message as RecordBatchEntry));
            if (received.length === total) resolve();
          };
          void consumer.run({ eachMessage });
        });
        await within(all, { what: `${total} records read from ${topic}`, timeoutMs: 20_000 });
        return received;
      } finally {
        await consumer.disconnect();
      }
    },
  };
}

async function countIn(admin: Admin, topic: string): Promise<number> {
  const offsets = await admin.fetchTopicOffsets(topic);
  if (offsets.length === 0) throw new Error(`${topic} has no partitions yet`);
  return offsets.reduce((sum, { high, low }) => sum + Number(high) - Number(low), 0);
}

function toReceived({ key, value, headers }: RecordBatchEntry): ReceivedMessage {
  const texts = Object.fromEntries(Object.entries(headers).map(([name, text]) => [name, String(text)]));
  return {
    body: String(value),
    bodyBytes: value ?? new Uint8Array(),
    key: key === null ? null : String(key),
    headers: texts,
    contentType: texts['content-type'],
    eventId: texts['event-id'],
  };
}
