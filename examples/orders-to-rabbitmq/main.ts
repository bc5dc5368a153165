// Orders to RabbitMQ: an order and its event commit together, the relay publishes what was committed, a consumer handles
// each event once. README.md says how to run it.
import { randomUUID } from 'node:crypto';
import pg from 'pg';
import { createRelay } from 'postcommit';
import { rabbitmq } from 'postcommit/rabbitmq';
import { Billing } from '../billing.ts';
import { OrderService } from '../order-service.ts';
import { startServers } from '../support/servers.ts';
import { createTables, tellStory } from '../support/story.ts';
import { type Consumer, startConsumer } from './consumer.ts';

const servers = await startServers('rabbitmq');
const url = servers.brokerUrl;
const exchange = `orders-${randomUUID()}`; // Of this run alone; yours would be `orders`.
const pool = new pg.Pool({ connectionString: servers.databaseUrl });
pool.on('error', () => {}); // An idle connection broke. Without this line that would end the process.

const relay = createRelay({
  connectionString: servers.databaseUrl,
  // Without a route an event goes to every destination, with its type as topic: here the routing key.
  destinations: { events: rabbitmq({ url, exchange }) },
});
let consumer: Consumer | undefined;
try {
  await createTables(servers.databaseUrl, pool);
  consumer = await startConsumer(url, exchange, new Billing(pool));
  await relay.start();
  process.exitCode = (await tellStory(new OrderService(pool), pool)) ? 0 : 1;
} finally {
  await relay.stop();
  await consumer?.stop();
  await pool.end();
  await servers.close();
}
