// Orders to Kafka: an order and its event commit together, the relay publishes what was committed, a consumer handles
// each event once. README.md says how to run it.
import { randomUUID } from 'node:crypto';
import pg from 'pg';
import { createRelay } from 'postcommit';
import { kafka } from 'postcommit/kafka';
import { Billing } from '../billing.ts';
import { OrderService } from '../order-service.ts';
import { startServers } from '../support/servers.ts';
import { createTables, tellStory } from '../support/story.ts';
import { type Consumer, startConsumer } from './consumer.ts';

const servers = await startServers('kafka');
const brokers = servers.brokerUrl.split(',');
const topic = `orders-${randomUUID()}`; // Of this run alone; yours would be `orders`.
const pool = new pg.Pool({ connectionString: servers.databaseUrl });
pool.on('error', () => {}); // An idle connection broke. Without this line that would end the process.

const relay = createRelay({
  connectionString: servers.databaseUrl,
  destinations: { events: kafka({ brokers }) },
  // One topic for all that happens to an order: Kafka keeps order within a partition, not between topics.
  route: () => ({ to: 'events', topic }),
});
let consumer: Consumer | undefined;
try {
  await createTables(servers.databaseUrl, pool);
  consumer = await startConsumer(brokers, topic, new Billing(pool));
  await relay.start();
  const orders = new OrderService(pool);
  process.exitCode = (await tellStory(orders, orders.outbox.admin, pool)) ? 0 : 1;
} finally {
  await relay.stop();
  await consumer?.stop();
  await pool.end();
  await servers.close();
}
