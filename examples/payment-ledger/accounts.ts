// The account service, as a process of its own: DATABASE_URL=… KAFKA_BROKERS=… PAYMENT_TOPIC=payment-events MERCHANT_URL=…
// WEBHOOK_SECRET=… npx tsx examples/payment-ledger/accounts.ts. It consumes the topic, and its relay tells the merchant. It stops
// on SIGTERM.
import { Kafka, logLevel } from 'kafkajs';
import pg from 'pg';
import { createInbox, createOutbox, createRelay, fromPg } from 'postcommit';
import { webhook } from 'postcommit/webhook';
import { AccountService } from './account-service.ts';
import { setting } from './environment.ts';

const connectionString = setting('DATABASE_URL');
const topic = setting('PAYMENT_TOPIC');

const pool = new pg.Pool({ connectionString });
pool.on('error', () => {}); // An idle connection broke. Without this line that would end the process.
const db = fromPg<pg.PoolClient>(pool);
const accounts = new AccountService(createOutbox({ db }), createInbox({ db }));
const relay = createRelay({
  connectionString,
  destinations: { merchant: webhook({ url: setting('MERCHANT_URL'), secret: setting('WEBHOOK_SECRET') }) },
});
// A consumer that is killed is missed after sessionTimeout, and only then are its partitions given to the next one.
const consumer = new Kafka({ brokers: setting('KAFKA_BROKERS').split(','), logLevel: logLevel.NOTHING }).consumer({
  groupId: `${topic}.accounts`,
  sessionTimeout: 6_000,
  heartbeatInterval: 1_000,
});

await relay.start();
await consumer.connect();
await consumer.subscribe({ topic, fromBeginning: true });
await consumer.run({
  partitionsConsumedConcurrently: 3,
  // What it throws makes kafkajs deliver the message again. So does a crash before the offset is committed.
  eachMessage: async ({ message }) => accounts.receive(JSON.parse(String(message.value))),
});

process.once('SIGTERM', () => {
  void consumer
    .disconnect()
    .then(() => relay.stop())
    .then(() => pool.end());
});
