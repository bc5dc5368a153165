import { randomUUID } from 'node:crypto';
import { AckPolicy, type JetStreamManager, jetstream, jetstreamManager } from '@nats-io/jetstream';
import { connect, headers as createHeaders, type NatsConnection } from '@nats-io/transport-node';
import { afterAll, beforeAll, describe, expect, onTestFinished, test } from 'vitest';
import { consumeNats } from '../../src/publishers/nats.ts';
import { fileService } from '../support/services.ts';
import { until } from '../support/wait.ts';
import { type ConsumerScene, envelopeOf, silent, testConsumer } from './consumer-suite.ts';

const server = fileService('nats');
let connection: NatsConnection;
beforeAll(async () => {
  connection = await connect({ servers: server.url });
});
afterAll(() => connection?.close());

/** With a long time to acknowledge, what is not acknowledged, nor handed back, does not come again during a test. */
async function addConsumer(manager: JetStreamManager, stream: string, ackWaitMs: number): Promise<void> {
  const ackWait = { ack_policy: AckPolicy.Explicit, ack_wait: 1_000_000 * ackWaitMs };
  await manager.consumers.add(stream, { durable_name: 'billing', ...ackWait });
}

async function createScene(): Promise<ConsumerScene> {
  const stream = `orders-${randomUUID()}`;
  const manager = await jetstreamManager(connection);
  await manager.streams.add({ name: stream, subjects: [stream] });
  await addConsumer(manager, stream, 120_000);
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

describe('the consumer of NATS JetStream', () => {
  test('keeps a message that takes longer than ack_wait, and acknowledges it while it runs on', async () => {
    const stream = `orders-${randomUUID()}`;
    const manager = await jetstreamManager(connection);
    await manager.streams.add({ name: stream, subjects: [stream] });
    await addConsumer(manager, stream, 1_000);
    let calls = 0;
    const consumer = consumeNats({
      consumer: () => jetstream(connection).consumers.get(stream, 'billing'),
      logger: silent,
      async handle() {
        calls++;
        await new Promise((resolve) => setTimeout(resolve, 2_500));
      },
    });
    onTestFinished(() => consumer.stop());
    await consumer.start();
    await jetstream(connection).publish(stream, String(envelopeOf('a', 0).body));
    await until(() => consumer.stats().processed === 1, { what: 'it is processed', timeoutMs: 20_000 });
    const isAcknowledged = async () => (await manager.consumers.info(stream, 'billing')).num_ack_pending === 0;
    await until(isAcknowledged, { what: 'it is acknowledged' });
    expect(await manager.consumers.info(stream, 'billing')).toMatchObject({ num_redelivered: 0, num_pending: 0 });
    expect(calls).toBe(1);
  });
});
