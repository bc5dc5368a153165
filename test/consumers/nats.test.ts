import { randomUUID } from 'node:crypto';
import { AckPolicy, jetstream, jetstreamManager } from '@nats-io/jetstream';
import { connect, headers as createHeaders, type NatsConnection } from '@nats-io/transport-node';
import { afterAll, beforeAll } from 'vitest';
import { consumeNats } from '../../src/publishers/nats.ts';
import { fileService } from '../support/services.ts';
import { until } from '../support/wait.ts';
import { type ConsumerScene, testConsumer } from './consumer-suite.ts';

const server = fileService('nats');
let connection: NatsConnection;
beforeAll(async () => {
  connection = await connect({ servers: server.url });
});
afterAll(() => connection?.close());

async function createScene(): Promise<ConsumerScene> {
  const stream = `orders-${randomUUID()}`;
  const manager = await jetstreamManager(connection);
  await manager.streams.add({ name: stream, subjects: [stream] });
  await manager.consumers.add(stream, { durable_name: 'billing', ack_policy: AckPolicy.Explicit });
  const terminated: { stream_seq: number; reason?: string }[] = [];
  connection.subscribe(`$JS.EVENT.ADVISORY.CONSUMER.MSG_TERMINATED.${stream}.>`, {
    callback: (_error, message) => void terminated.push(message.json()),
  });
  let consuming: NatsConnection | undefined;
  return {
    consumer: (options) =>
      consumeNats({
        ...options,
        async consumer() {
          if (consuming === undefined || consuming.isClosed()) {
            consuming = await connect({ servers: server.url, reconnect: false });
          }
          return jetstream(consuming).consumers.get(stream, 'billing');
        },
      }),
    async publish(messages) {
      for (const { body, headers } of messages) {
        const natsHeaders = createHeaders();
        for (const [name, value] of Object.entries(headers)) natsHeaders.set(name, value);
        await jetstream(connection).publish(stream, body as string, { headers: natsHeaders });
      }
    },
    async deadLetters(count) {
      await until(() => terminated.length >= count, { what: `${count} advisories` });
      return Promise.all(
        terminated.map(async ({ stream_seq, reason }) => {
          const message = await manager.streams.getMessage(stream, { seq: stream_seq });
          return { body: message?.string() ?? '', reason };
        }),
      );
    },
    async unsettled() {
      await consuming?.close();
      return (await manager.consumers.info(stream, 'billing')).num_ack_pending;
    },
    async cutConnections() {
      await consuming?.close();
    },
  };
}

testConsumer('NATS JetStream', createScene, { cutsConnections: true });
