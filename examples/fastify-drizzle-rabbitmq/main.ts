// Fastify, Drizzle and RabbitMQ: a request writes an order and its event in one transaction, the relay publishes what was
// committed, a consumer handles each event once. README.md says how to run it.
import { randomUUID } from 'node:crypto';
import pg from 'pg';
import { createRelay } from 'postcommit';
import { rabbitmq } from 'postcommit/rabbitmq';
import { Billing } from '../billing.ts';
import { OrderClient } from '../support/order-client.ts';
import { startServers } from '../support/servers.ts';
import { createTables, tellStory } from '../support/story.ts';
import { createApp } from './app.ts';
import { type Consumer, startConsumer } from './consumer.ts';

const servers = await startServers('rabbitmq');
const url = servers.brokerUrl;
const exchange = `orders-${randomUUID()}`; // Of this run alone; yours would be `orders`.
const openPool = () => new pg.Pool({ connectionString: servers.databaseUrl }).on('error', () => {});

const relay = createRelay({
  connectionString: servers.databaseUrl,
  // Without a route an event goes to every destination, with its type as topic: here the routing key.
  destinations: { events: rabbitmq({ url, exchange }) },
});
const app = await createApp(openPool(), relay);
const billingPool = openPool(); // Billing would be a service of its own, with a database of its own.
let consumer: Consumer | undefined;
try {
  await createTables(servers.databaseUrl, billingPool);
  consumer = await startConsumer(url, exchange, new Billing(billingPool));
  const address = await app.listen({ host: '127.0.0.1', port: 0 });
  process.exitCode = (await tellStory(new OrderClient(address), app.outbox.admin, billingPool)) ? 0 : 1;
} finally {
  await app.close();
  await consumer?.stop();
  await billingPool.end();
  await servers.close();
}
