import { randomUUID } from 'node:crypto';
import { type ChannelModel, connect } from 'amqplib';
import { afterAll, describe, it } from 'vitest';
import { rabbitmq } from '../../src/publishers/rabbitmq.ts';
import { type PublisherHarness, publisherConformance, type ReceivedMessage } from '../../src/testing/index.ts';
import { fileService } from '../support/services.ts';
import { until } from '../support/wait.ts';

const server = fileService('rabbitmq');
const messageBytesMax = 1_000_000;

let consumer: ChannelModel | undefined;
/** Getting a message takes it away, so what was read of a queue is kept here. */
const readSoFar = new Map<string, ReceivedMessage[]>();

/** The server is stopped and started between two reads. */
async function consumerConnection(): Promise<ChannelModel> {
  if (consumer) return consumer;
  const opened = await connect(server.url);
  opened.on('error', () => {});
  opened.on('close', () => {
    consumer = undefined;
  });
  consumer = opened;
  return opened;
}

async function read(queue: string, count: number): Promise<ReceivedMessage[]> {
  const received = readSoFar.get(queue) ?? [];
  readSoFar.set(queue, received);
  const channel = await (await consumerConnection()).createChannel();
  await until(
    async () => {
      for (let got = await channel.get(queue, { noAck: true }); got; got = await channel.get(queue, { noAck: true })) {
        const { headers = {}, contentType, messageId } = got.properties;
        received.push({
          body: got.content.toString(),
          bodyBytes: got.content,
          key: null,
          headers,
          contentType,
          eventId: messageId,
        });
      }
      return received.length >= count;
    },
    { what: `${count} messages are in ${queue}, with ${received.length} there`, timeoutMs: 20_000 },
  );
  await channel.close();
  return received;
}

const harness: PublisherHarness = {
  createPublisher: () => rabbitmq({ url: server.url, messageBytesMax }),
  async createTopic() {
    const channel = await (await consumerConnection()).createChannel();
    const { queue } = await channel.assertQueue(`conformance-${randomUUID()}`, { durable: true });
    await channel.close();
    return queue;
  },
  read,
  oversizedBytes: messageBytesMax,
  malformed: (message) => ({ ...message, topic: 'x'.repeat(256) }),
  keyless: true,
  ...server.disturbances,
};

describe('the RabbitMQ publisher', () => {
  afterAll(() => consumer?.close());
  for (const check of publisherConformance(harness)) it(check.name, check.run, 120_000);
});
