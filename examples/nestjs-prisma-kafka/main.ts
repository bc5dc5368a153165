// NestJS, Prisma and Kafka: a request writes an order and its event in one Prisma transaction, the relay of the application
// publishes what was committed, a consumer handles each event once. README.md says how to run it.
import { randomUUID } from 'node:crypto';
import pg from 'pg';
import { createOutbox, fromPg } from 'postcommit';
import { Billing } from '../billing.ts';
import { type Consumer, startConsumer } from '../orders-to-kafka/consumer.ts';
import { OrderClient } from '../support/order-client.ts';
import { startServers } from '../support/servers.ts';
import { createTables, tellStory } from '../support/story.ts';
import { buildApplication, startApplication } from './application.ts';

const servers = await startServers('kafka');
const topic = `orders-${randomUUID()}`; // Of this run alone; yours would be `orders`.
const pool = new pg.Pool({ connectionString: servers.databaseUrl }).on('error', () => {});
let consumer: Consumer | undefined;
try {
  await createTables(servers.databaseUrl, pool);
  await pool.query('create table receipts (event_id uuid primary key, order_id text not null)');
  buildApplication();
  consumer = await startConsumer(servers.brokerUrl.split(','), topic, new Billing(pool));
  const app = await startApplication({
    DATABASE_URL: servers.databaseUrl,
    KAFKA_BROKERS: servers.brokerUrl,
    TOPIC: topic,
    PORT: '0',
  });
  const { admin } = createOutbox({ db: fromPg(pool) });
  const isTold = await tellStory(new OrderClient(app.url), admin, pool);
  const ending = await app.stop();
  const { rows } = await pool.query('select order_id from receipts order by order_id');
  console.log(
    `receipts ${rows.length} of ${rows.map(({ order_id }) => order_id).join(', ')}; the application ${ending}`,
  );
  process.exitCode = isTold && rows.length === 5 ? 0 : 1;
} finally {
  await consumer?.stop();
  await pool.end();
  await servers.close();
}
