// Express, pg and webhooks: a request writes an order and its event in one transaction, the relay posts what was committed, signed,
// and the receiver checks the signature and handles each event once. README.md says how to run it.
import { randomBytes } from 'node:crypto';
import pg from 'pg';
import { createRelay } from 'postcommit';
import { webhook } from 'postcommit/webhook';
import { Billing } from '../billing.ts';
import { OrderService } from '../order-service.ts';
import { listen } from '../support/listen.ts';
import { OrderClient } from '../support/order-client.ts';
import { startServers } from '../support/servers.ts';
import { createTables, tellStory } from '../support/story.ts';
import { createApp } from './app.ts';
import { createReceiver } from './receiver.ts';

const servers = await startServers();
const secret = process.env.WEBHOOK_SECRET ?? `whsec_${randomBytes(32).toString('base64')}`;
const pool = new pg.Pool({ connectionString: servers.databaseUrl });
pool.on('error', () => {}); // An idle connection broke. Without this line that would end the process.

const orders = new OrderService(pool);
const service = await listen(createApp(orders));
const receiver = await listen(createReceiver(secret, new Billing(pool)));
const relay = createRelay({
  connectionString: servers.databaseUrl,
  destinations: { billing: webhook({ url: `${receiver.url}/events`, secret }) },
});
try {
  await createTables(servers.databaseUrl, pool);
  await relay.start();
  const forged = await fetch(`${receiver.url}/events`, { method: 'POST', body: '{"eventType":"order.paid"}' });
  console.log(`forged   a request without a signature was answered with ${forged.status}`);
  const arrived = await tellStory(new OrderClient(service.url), orders.outbox.admin, pool);
  process.exitCode = arrived && forged.status === 401 ? 0 : 1;
} finally {
  // Requests finish first, then deliveries; the pool is for both.
  await service.close();
  await relay.stop();
  await receiver.close();
  await pool.end();
  await servers.close();
}
