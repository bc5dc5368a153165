import { randomUUID } from 'node:crypto';
import type { Socket } from 'node:net';
import { type ChannelModel, connect } from 'amqplib';
import { afterAll, beforeAll, describe, expect, onTestFinished, test } from 'vitest';
import { Reject } from '../../src/index.ts';
import { consumeRabbitmq } from '../../src/publishers/rabbitmq.ts';
import { fileService } from '../support/services.ts';
import { startTcpProxy } from '../support/tcp-proxy.ts';
import { until, within } from '../support/wait.ts';
import { type ConsumerScene, envelopeOf, silent, testConsumer } from './consumer-suite.ts';

const server = fileService('rabbitmq');
let admin: ChannelModel;
beforeAll(async () => {
  admin = await connect(server.url);
});
afterAll(() => admin?.close());

async function createScene(): Promise<ConsumerScene> {
  const channel = await admin.createConfirmChannel();
  const queue = `billing-${randomUUID()}`;
  const dead = `${queue}-dead`;
  await channel.assertQueue(dead);
  await channel.assertQueue(queue, {
    arguments: { 'x-dead-letter-exchange': '', 'x-dead-letter-routing-key': dead, 'x-single-active-consumer': true },
  });
  const open = new Set<ChannelModel>();
  return {
    consumer: (options) =>
      consumeRabbitmq({
        ...options,
        queue,
        async connect() {
          const connection = await connect(server.url);
          open.add(connection);
          connection.on('close', () => open.delete(connection));
          return connection;
        },
      }),
    async publish(messages) {
      for (const { body, headers, contentType } of messages) {
        channel.sendToQueue(queue, Buffer.from(body as string), { headers, contentType: contentType ?? '' });
      }
      await channel.waitForConfirms();
    },
    async deadLetters(count) {
      const letters: { body: string }[] = [];
      await until(
        async () => {
          const message = await channel.get(dead, { noAck: true });
          if (message) letters.push({ body: message.content.toString() });
          return letters.length >= count;
        },
        { what: `${count} dead letters` },
      );
      return letters;
    },
    async cutConnections() {
      for (const connection of open) {
        (connection.connection as unknown as { stream: Socket }).stream.destroy(new Error('cut'));
      }
    },
  };
}

testConsumer('RabbitMQ', createScene, { cutsConnections: true });

describe('the consumer of RabbitMQ', () => {
  /** A queue behind a proxy, with a heartbeat that notices nothing during a test. */
  async function createProxiedQueue() {
    const channel = await admin.createChannel();
    const queue = `billing-${randomUUID()}`;
    await channel.assertQueue(queue);
    const { hostname, port } = new URL(server.url);
    const proxy = await startTcpProxy({ host: hostname, port: Number(port) });
    onTestFinished(() => proxy.close());
    let connects = 0;
    const connectThrough = () => {
      connects++;
      return connect(`${proxy.url(server.url)}?heartbeat=0`);
    };
    return { queue, proxy, connectThrough, connects: () => connects };
  }

  test('a dead letter that the channel did not take is not counted, and RabbitMQ delivers the message again', async () => {
    const { queue, proxy, connectThrough } = await createProxiedQueue();
    let calls = 0;
    const consumer = consumeRabbitmq({
      connect: connectThrough,
      queue,
      logger: silent,
      async handle(_event, { signal }) {
        if (++calls > 1) return;
        proxy.cut();
        await until(() => proxy.connections === 0, { what: 'the connection is cut' });
        await until(() => lost, { what: 'the consumer knows' });
        signal.throwIfAborted();
        throw new Reject('no such customer');
      },
    });
    let lost = false;
    consumer.on('disconnected', () => {
      lost = true;
    });
    onTestFinished(() => consumer.stop());
    await consumer.start();
    const channel = await admin.createChannel();
    channel.sendToQueue(queue, Buffer.from(envelopeOf('a', 0).body as string), { headers: envelopeOf('a', 0).headers });
    await until(() => calls === 2, { what: 'it is delivered again', timeoutMs: 20_000 });
    expect(consumer.stats()).toMatchObject({ deadLettered: 0, released: 1 });
  });

  test('stop ends while a connection that was lost is not replaced, and a later one is closed', async () => {
    const { queue, proxy, connectThrough, connects } = await createProxiedQueue();
    const consumer = consumeRabbitmq({ connect: connectThrough, queue, logger: silent, handle() {} });
    await consumer.start();
    proxy.stall();
    proxy.cut();
    await until(() => connects() === 2, { what: 'it connects again' });
    await within(consumer.stop(), { what: 'it has stopped', timeoutMs: 5_000 });
    expect(consumer.stats().state).toBe('idle');
    proxy.resume();
    await until(() => proxy.connections === 0, { what: 'the late connection is closed' });
  });

  test.each(['connection', 'consumer'])('start fails when RabbitMQ does not accept the %s in time', async (what) => {
    const { queue, proxy, connectThrough } = await createProxiedQueue();
    const consumer = consumeRabbitmq({
      async connect() {
        if (what === 'connection') proxy.stall();
        const connection = await connectThrough();
        if (what === 'consumer') proxy.stall();
        return connection;
      },
      queue,
      connectTimeoutMs: 1_000,
      logger: silent,
      handle() {},
    });
    await within(expect(consumer.start()).rejects.toThrow('No answer in time'), { what: 'it has failed' });
    proxy.resume();
    await until(() => proxy.connections === 0, { what: 'the connection is closed' });
  });
});
