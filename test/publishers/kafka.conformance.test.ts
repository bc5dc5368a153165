import { Kafka, logLevel, Partitioners } from 'kafkajs';
import { afterAll, describe, it } from 'vitest';
import type { KafkaOptions } from '../../src/publishers/kafka.ts';
import { fileService } from '../support/services.ts';
import { clusterChangeChecks, kafkaConformance } from './kafka-clients/conformance.ts';
import { kafkaReader } from './kafka-reader.ts';

const server = fileService('kafka');
const broker = () => server.url;
const reader = kafkaReader(broker);
// `npm run test:clients` sets it for a client that is not installed here.
const client = (process.env.POSTCOMMIT_TEST_KAFKA_CLIENT ?? 'kafkajs') as NonNullable<KafkaOptions['client']>;

describe('the Kafka publisher', () => {
  const { disturbances } = server;
  const clientOptions = (brokers: string[]) => ({ brokers, client });
  for (const check of kafkaConformance({ reader, broker, clientOptions, disturbances })) {
    it(check.name, check.run, 120_000);
  }
});

const createProducer = (brokers: string[], idempotent: boolean) =>
  new Kafka({ brokers, logLevel: logLevel.NOTHING }).producer({
    idempotent,
    createPartitioner: Partitioners.DefaultPartitioner,
    retry: { retries: 3, initialRetryTime: 100 },
  });

describe('the Kafka publisher over a function that makes kafkajs producers', () => {
  const clientOptions = (brokers: string[]) => ({ producer: () => createProducer(brokers, true) });
  for (const check of clusterChangeChecks({ reader, broker, clientOptions })) it(check.name, check.run, 120_000);
});

describe('the Kafka publisher over a kafkajs producer that is handed in', () => {
  const producers: ReturnType<typeof createProducer>[] = [];
  afterAll(() => Promise.all(producers.map((producer) => producer.disconnect())));
  const clientOptions = (brokers: string[]) => {
    const producer = createProducer(brokers, false);
    producers.push(producer);
    return { producer };
  };
  for (const check of clusterChangeChecks({ reader, broker, clientOptions })) it(check.name, check.run, 120_000);
});
