import { randomUUID } from 'node:crypto';
import type { Socket } from 'node:net';
import { type ChannelModel, connect } from 'amqplib';
import { afterAll, beforeAll } from 'vitest';
import { consumeRabbitmq } from '../../src/publishers/rabbitmq.ts';
import { fileService } from '../support/services.ts';
import { until } from '../support/wait.ts';
import { type ConsumerScene, testConsumer } from './consumer-suite.ts';

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
