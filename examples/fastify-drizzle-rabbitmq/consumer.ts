import { connect } from 'amqplib';
import type { Billing } from '../billing.ts';

export interface Consumer {
  stop(): Promise<void>;
}

/** Hands what the exchange gets about orders to billing, one event at a time and in order. */
export async function startConsumer(url: string, exchange: string, billing: Billing): Promise<Consumer> {
  const connection = await connect(url);
  const channel = await connection.createChannel();
  const queue = `${exchange}-billing`;
  await channel.assertExchange(exchange, 'topic', { durable: true });
  await channel.assertQueue(queue, { durable: true });
  await channel.bindQueue(queue, exchange, 'order.*');
  await channel.prefetch(1); // The next one when this one is done: that keeps their order.
  await channel.consume(queue, async (message) => {
    if (message === null) return;
    try {
      await billing.receive(JSON.parse(message.content.toString()));
      channel.ack(message);
    } catch {
      channel.nack(message); // Back to the head of the queue.
    }
  });
  return {
    async stop() {
      await channel.deleteQueue(queue);
      await channel.deleteExchange(exchange);
      await connection.close();
    },
  };
}
