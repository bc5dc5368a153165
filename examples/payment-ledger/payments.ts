// The payment service, as a process of its own: DATABASE_URL=… KAFKA_BROKERS=… PAYMENT_TOPIC=payment-events PORT=3001 npx tsx
// examples/payment-ledger/payments.ts. It takes requests, and its relay publishes what was committed. It stops on SIGTERM.
import { createServer, type IncomingMessage } from 'node:http';
import { json } from 'node:stream/consumers';
import pg from 'pg';
import { createOutbox, createRelay, fromPg } from 'postcommit';
import { kafka } from 'postcommit/kafka';
import { setting } from './environment.ts';
import { type Payment, PaymentService } from './payment-service.ts';

const connectionString = setting('DATABASE_URL');
const topic = setting('PAYMENT_TOPIC');
/** PostgreSQL's code for it: the amount is over the limit. */
const checkViolation = '23514';

const pool = new pg.Pool({ connectionString });
pool.on('error', () => {}); // An idle connection broke. Without this line that would end the process.
const payments = new PaymentService(createOutbox({ db: fromPg<pg.PoolClient>(pool) }));
const relay = createRelay({
  connectionString,
  destinations: { events: kafka({ brokers: setting('KAFKA_BROKERS').split(',') }) },
  route: () => ({ to: 'events', topic }),
});

/** `POST /payments` with a payment, `POST /payments/<id>/refund`. Both can be repeated. Returns the status. */
async function answer(request: IncomingMessage): Promise<number> {
  const [, collection, id, action] = (request.url ?? '').split('/');
  if (request.method !== 'POST' || collection !== 'payments') return 404;
  if (id !== undefined) return action === 'refund' && (await payments.refund(id)) ? 200 : 404;
  try {
    await payments.capture((await json(request)) as Payment);
    return 200;
  } catch (error) {
    if ((error as { code?: string }).code === checkViolation) return 422;
    throw error;
  }
}

const server = createServer((request, response) => {
  answer(request).then(
    (status) => response.writeHead(status).end(),
    () => response.writeHead(500).end(),
  );
});
await relay.start();
server.listen(Number(setting('PORT')), '127.0.0.1');

process.once('SIGTERM', () => {
  server.close();
  server.closeAllConnections();
  void relay.stop().then(() => pool.end());
});
