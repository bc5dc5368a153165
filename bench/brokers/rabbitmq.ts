import { randomUUID } from 'node:crypto';
import amqplib from 'amqplib';
import { type Broker, timed } from './broker.ts';

const unconfirmedMax = 1_000;

export const rabbitmq: Broker = {
  name: 'rabbitmq',
  service: 'rabbitmq',
  client: 'amqplib',
  goal: 0.5,
  nextGoal: 0.75,
  share: 0.4, // Of more in one queue its server runs low on memory, and stops taking messages.
  async createTopic(url) {
    const connection = await amqplib.connect(url);
    const channel = await connection.createChannel();
    const { queue } = await channel.assertQueue(`bench-${randomUUID()}`, { durable: true });
    await connection.close();
    return queue;
  },
  async removeTopic(url, queue) {
    const connection = await amqplib.connect(url);
    await (await connection.createChannel()).deleteQueue(queue);
    await connection.close();
  },
  async createPublisher(url) {
    const { rabbitmq } = await import(new URL('../../dist/publishers/rabbitmq.js', import.meta.url).href);
    return rabbitmq({ url });
  },
  async publishAll(url, queue, events) {
    const connection = await amqplib.connect(url);
    const channel = await connection.createConfirmChannel();
    const tookMs = await timed(events, unconfirmedMax, (event) => {
      const { body, headers, eventId, contentType } = event.toMessage();
      const options = { persistent: true, mandatory: true, messageId: eventId, contentType, headers };
      return new Promise<void>((resolve, reject) => {
        channel.publish('', queue, Buffer.from(body as string), options, (error) =>
          error ? reject(error) : resolve(),
        );
      });
    });
    await connection.close();
    return tookMs;
  },
};
