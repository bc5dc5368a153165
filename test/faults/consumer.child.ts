// A consumer of Kafka or RabbitMQ in a process of its own, for tests that kill it. It books each event in its transaction. Arguments:
// broker (kafka or rabbitmq), its address, topic or queue, connection string, milliseconds that each event
// takes, `hold` to wait in the middle of a batch until the group rebalances. It tells how many it has booked, one JSON object a line.
import { setTimeout as sleep } from 'node:timers/promises';
import { connect } from 'amqplib';
import { Kafka, logLevel } from 'kafkajs';
import pg from 'pg';
import { createInbox, fromPg, type ReceivedEvent, type TransactionalConsumerContext } from '../../src/index.ts';
import { consumeKafka } from '../../src/publishers/kafka.ts';
import { consumeRabbitmq } from '../../src/publishers/rabbitmq.ts';
import { watchedClient } from './watched-kafka-client.ts';

const [broker = '', address = '', topic = '', connectionString = '', workMs = '0', hold = ''] = process.argv.slice(2);
const tell = (message: object) => console.log(JSON.stringify(message));
const pool = new pg.Pool({ connectionString, max: 16 });
const kafka = watchedClient(
  new Kafka({ brokers: [address], logLevel: logLevel.NOTHING }).consumer({
    groupId: topic,
    sessionTimeout: 6_000,
    heartbeatInterval: 500,
    maxWaitTimeInMs: 100,
  }),
  tell,
);
if (hold === 'hold') kafka.hold();
const options = {
  inbox: createInbox({ db: fromPg<pg.PoolClient>(pool) }).consumer('accounts'),
  transactional: true as const,
  async handle(event: ReceivedEvent, { tx }: TransactionalConsumerContext<pg.PoolClient>) {
    await sleep(Number(workMs));
    await kafka.pass(event.id);
    const { n } = event.payload as { n: number };
    await tx.query('insert into effects (event_id, key, n) values ($1, $2, $3)', [event.id, event.key, n]);
  },
};
const consumer =
  broker === 'kafka'
    ? consumeKafka({
        ...options,
        consumer: kafka.client,
        topics: [topic],
        fromBeginning: true,
        deadLetter: 'skip',
      })
    : consumeRabbitmq({ ...options, connect: () => connect(address), queue: topic });
const reporting = setInterval(() => {
  const { processed, duplicates, released, deadLettered } = consumer.stats();
  tell({ processed, duplicates, released, deadLettered });
}, 20);
process.once('SIGTERM', async () => {
  await consumer.stop();
  clearInterval(reporting);
  await pool.end();
  tell({ event: 'stopped' });
});
await consumer.start();
tell({ event: 'started' });
