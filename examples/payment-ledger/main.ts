// A payment ledger: two services with a database each, a Kafka topic between them, and a merchant behind a webhook. Both services are
// killed on the way, and at the end ledger, accounts and merchant must agree to the cent. README.md says how to run it.
import { randomBytes, randomUUID } from 'node:crypto';
import { createServer } from 'node:net';
import { Kafka, logLevel } from 'kafkajs';
import pg from 'pg';
import { migrate } from 'postcommit';
import { startServers } from '../support/servers.ts';
import { Merchant } from './merchant.ts';
import { ServiceProcesses } from './service-processes.ts';
import { tellStory } from './story.ts';
import { createAccountTables, createPaymentTables } from './tables.ts';

// On a Kafka of yours it has a topic of its own, and removes it.
const topic = process.env.KAFKA_BROKERS ? `payment-events-${randomUUID()}` : 'payment-events';
const servers = await startServers('kafka');
const admin = new Kafka({ brokers: servers.brokerUrl.split(','), logLevel: logLevel.NOTHING }).admin();
const merchant = new Merchant(`whsec_${randomBytes(32).toString('base64')}`);
const pools: pg.Pool[] = [];
let services: ServiceProcesses | undefined;

function openPool(connectionString: string): pg.Pool {
  const pool = new pg.Pool({ connectionString });
  pool.on('error', () => {}); // An idle connection broke. Without this line that would end the process.
  pools.push(pool);
  return pool;
}

/** The port stays the same when the service is started again, as behind a load balancer. */
async function freePort(): Promise<number> {
  const probe = createServer().listen(0, '127.0.0.1');
  await new Promise((listening) => probe.once('listening', listening));
  const { port } = probe.address() as { port: number };
  await new Promise((closed) => probe.close(closed));
  return port;
}

try {
  const urls = { payments: servers.databaseUrl, accounts: await servers.addDatabase() };
  for (const connectionString of Object.values(urls)) await migrate({ connectionString });
  const [payments, accounts] = [openPool(urls.payments), openPool(urls.accounts)];
  await createPaymentTables(payments);
  await createAccountTables(accounts);
  await admin.connect();
  await admin.createTopics({ topics: [{ topic, numPartitions: 3 }], waitForLeaders: true });
  await merchant.start();

  const port = String(await freePort());
  const shared = { KAFKA_BROKERS: servers.brokerUrl, PAYMENT_TOPIC: topic };
  services = new ServiceProcesses({
    payments: { ...shared, DATABASE_URL: urls.payments, PORT: port },
    accounts: { ...shared, DATABASE_URL: urls.accounts, MERCHANT_URL: merchant.url, WEBHOOK_SECRET: merchant.secret },
  });
  services.start('payments');
  services.start('accounts');
  const paymentUrl = `http://127.0.0.1:${port}`;
  process.exitCode = (await tellStory({ paymentUrl, payments, accounts, merchant, services })) ? 0 : 1;
} finally {
  await services?.stop();
  await merchant.stop();
  if (process.env.KAFKA_BROKERS) await admin.deleteTopics({ topics: [topic] }).catch(() => {});
  await admin.disconnect();
  await Promise.all(pools.map((pool) => pool.end()));
  await servers.close();
}
