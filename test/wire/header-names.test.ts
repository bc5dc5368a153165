import { randomUUID } from 'node:crypto';
import { jetstreamManager } from '@nats-io/jetstream';
import { connect as connectNats } from '@nats-io/transport-node';
import { connect as connectRabbitMq } from 'amqplib';
import { createClient } from 'redis';
import { describe, expect, test } from 'vitest';
import type { Publisher } from '../../src/index.ts';
import { kafka } from '../../src/publishers/kafka.ts';
import { nats } from '../../src/publishers/nats.ts';
import { rabbitmq } from '../../src/publishers/rabbitmq.ts';
import { redis } from '../../src/publishers/redis.ts';
import { sns } from '../../src/publishers/sns.ts';
import { sqs } from '../../src/publishers/sqs.ts';
import { webhook } from '../../src/publishers/webhook.ts';
import { testAccess } from '../publishers/aws-queue.ts';
import { TopicConsumer } from '../publishers/aws-topic.ts';
import { kafkaReader } from '../publishers/kafka-reader.ts';
import { Receiver } from '../publishers/webhook-receiver.ts';
import { withScenario } from '../support/relay-scenario.ts';
import { fileService } from '../support/services.ts';
import { until } from '../support/wait.ts';

const kafkaServer = fileService('kafka');
const rabbitServer = fileService('rabbitmq');
const natsServer = fileService('nats');
const redisServer = fileService('redis');
const sqsServer = fileService('sqs');

/** Names that every JavaScript object inherits; `fromEntries` is how an object gets a property called `__proto__`. */
const inherited = { ...Object.fromEntries([['__proto__', 'p']]), constructor: 'c', toString: 't' };

/** Beyond 2^53: a client that made a number of it would change it. */
const seq = '9007199254740993';

/** Emits an event with those headers, delivers it, and compares what `read` finds, all of it as pairs. */
function arrives(open: () => Promise<{ publisher: Publisher; topic: string; read(): Promise<[string, string][]> }>) {
  return withScenario(async (scenario) => {
    const { publisher, topic, read } = await open();
    const relay = scenario.idleRelay('r', {
      handlers: {},
      destinations: { broker: publisher },
      route: () => ({ to: 'broker', topic, headers: { 'x-tenant': 'route' } }),
    });
    await scenario.db.query(`select setval('postcommit.outbox_events_seq_seq', ${seq}, false)`);
    await scenario.emit([{ aggregateId: '1', headers: { ...inherited, 'X-Tenant': 'event' } as never }]);
    await relay.runOnce();
    expect(await scenario.db.query('select target, error from postcommit.outbox_failures')).toEqual([]);
    expect(relay.stats().delivered).toBe(1);
    const found = (await read()).filter(([name]) =>
      /^(?:__proto__|constructor|toString|x-tenant|event-seq)$/i.test(name),
    );
    const expected = [...Object.entries(inherited), ['x-tenant', 'route'], ['event-seq', seq]].map(
      ([name = '', value]) => [name.toLowerCase(), value],
    );
    expect(found.map(([name, value]) => [name.toLowerCase(), value]).sort()).toEqual(expected.sort());
  });
}

describe('header names that objects inherit, names that differ only in case, and the seq', () => {
  test(
    'Kafka',
    arrives(async () => {
      const reader = kafkaReader(() => kafkaServer.url);
      const topic = await reader.createTopic();
      const read = async () => {
        const headers = Object.entries((await reader.read(topic, 1))[0]?.headers ?? {});
        // kafkajs, when it reads, puts what its own object inherits in front of the value.
        return headers.map(([name, value]): [string, string] => [name, value.replace(/^.*,/s, '')]);
      };
      return { publisher: kafka({ brokers: [kafkaServer.url] }), topic, read };
    }),
    120_000,
  );

  test(
    'RabbitMQ',
    arrives(async () => {
      const exchange = `headers-${randomUUID()}`;
      const connection = await connectRabbitMq(rabbitServer.url);
      const channel = await connection.createChannel();
      await channel.assertExchange(exchange, 'headers');
      const { queue } = await channel.assertQueue('', { exclusive: true });
      // RabbitMQ itself finds the header: amqplib drops it when it reads the message.
      const binding = Object.fromEntries([
        ['__proto__', 'p'],
        ['x-match', 'all'],
      ]);
      await channel.bindQueue(queue, exchange, '', binding);
      const read = async (): Promise<[string, string][]> => {
        const message = await until(() => channel.get(queue, { noAck: true }), { what: 'it has arrived' });
        await connection.close();
        return [['__proto__', 'p'], ...(Object.entries(message.properties.headers ?? {}) as [string, string][])];
      };
      return { publisher: rabbitmq({ url: rabbitServer.url, exchange }), topic: 'x', read };
    }),
    120_000,
  );

  test(
    'NATS',
    arrives(async () => {
      const topic = `headers-${randomUUID()}`;
      const connection = await connectNats({ servers: natsServer.url });
      const manager = await jetstreamManager(connection);
      await manager.streams.add({ name: topic, subjects: [topic] });
      const read = async () => {
        const message = await manager.streams.getMessage(topic, { seq: 1 });
        await connection.close();
        const names = message?.header.keys() ?? [];
        return names.map((name): [string, string] => [name, message?.header.get(name) ?? '']);
      };
      return { publisher: nats({ servers: natsServer.url }), topic, read };
    }),
    60_000,
  );

  test(
    'Redis',
    arrives(async () => {
      const topic = `headers-${randomUUID()}`;
      const read = async () => {
        const client = createClient({ url: redisServer.url });
        await client.connect();
        const [[, fields]] = (await client.sendCommand(['XRANGE', topic, '-', '+'])) as [[string, string[]]];
        client.destroy();
        return fields.flatMap((name, index): [string, string][] =>
          index % 2 === 0 ? [[name.replace(/^header:/, ''), fields[index + 1] ?? '']] : [],
        );
      };
      return { publisher: redis({ url: redisServer.url }), topic, read };
    }),
    60_000,
  );

  test.each(['sqs', 'sns'] as const)(
    '%s',
    async (kind) => {
      const consumer = new TopicConsumer(sqsServer.url);
      const access = { ...testAccess, endpoint: sqsServer.url };
      const open = async () => {
        const topic = await (kind === 'sqs'
          ? consumer.queues.createQueue('standard')
          : consumer.createTopic('standard'));
        const publisher = kind === 'sqs' ? sqs(access) : sns(access);
        const from = kind === 'sqs' ? consumer.queues : consumer;
        return { publisher, topic, read: async () => Object.entries((await from.read(topic, 1))[0]?.headers ?? {}) };
      };
      try {
        await arrives(open)();
      } finally {
        consumer.close();
      }
    },
    60_000,
  );

  test(
    'webhooks',
    arrives(async () => {
      const receiver = await Receiver.forTest();
      const read = async () => {
        const { rawHeaders } = receiver.requests[0] ?? { rawHeaders: [] };
        return rawHeaders.flatMap((name, index): [string, string][] =>
          index % 2 === 0 ? [[name, rawHeaders[index + 1] ?? '']] : [],
        );
      };
      return { publisher: webhook({ url: receiver.url(), secret: null }), topic: 'x', read };
    }),
  );
});
