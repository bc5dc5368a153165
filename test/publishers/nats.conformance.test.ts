import { randomUUID } from 'node:crypto';
import { AckPolicy, jetstreamManager } from '@nats-io/jetstream';
import { connect, type NatsConnection } from '@nats-io/transport-node';
import { describe, it } from 'vitest';
import { nats } from '../../src/publishers/nats.ts';
import { type PublisherHarness, publisherConformance, type ReceivedMessage } from '../../src/testing/index.ts';
import { fileService } from '../support/services.ts';
import { until } from '../support/wait.ts';

const server = fileService('nats');
/** The server's max_payload, unless configured. */
const payloadBytesMax = 1_048_576;

async function withConnection<T>(work: (connection: NatsConnection) => Promise<T>): Promise<T> {
  const connection = await connect({ servers: server.url });
  try {
    return await work(connection);
  } finally {
    await connection.close();
  }
}

function read(topic: string, count: number): Promise<ReceivedMessage[]> {
  return withConnection(async (connection) => {
    const { streams, consumers } = await jetstreamManager(connection);
    const received: ReceivedMessage[] = [];
    await until(async () => (await streams.info(topic)).state.messages >= count, {
      what: `${count} messages are in ${topic}`,
      timeoutMs: 20_000,
    });
    const { name } = await consumers.add(topic, { ack_policy: AckPolicy.None, mem_storage: true });
    const consumer = await (await jetstreamManager(connection)).jetstream().consumers.get(topic, name);
    const { num_pending: stored } = await consumer.info();
    for await (const { data, headers } of await consumer.fetch({ max_messages: stored, expires: 10_000 })) {
      const all = Object.fromEntries((headers?.keys() ?? []).map((name) => [name, headers?.get(name) ?? '']));
      const { 'Content-Type': contentType, 'Nats-Msg-Id': deduplicationId, ...rest } = all;
      const body = Buffer.from(data);
      const ids = { eventId: rest['event-id'], deduplicationId };
      received.push({ body: body.toString(), bodyBytes: body, key: null, headers: rest, contentType, ...ids });
    }
    return received;
  });
}

const harness: PublisherHarness = {
  createPublisher: () => nats({ servers: server.url }),
  createTopic: () =>
    withConnection(async (connection) => {
      const name = `conformance-${randomUUID()}`;
      await (await jetstreamManager(connection)).streams.add({ name, subjects: [name] });
      return name;
    }),
  read,
  oversizedBytes: payloadBytesMax,
  malformed: (message) => ({ ...message, topic: `${message.topic}.*` }),
  keyless: true,
  ...server.disturbances,
};

describe('the NATS publisher', () => {
  for (const check of publisherConformance(harness)) it(check.name, check.run, 120_000);
});
