import { Kafka, logLevel } from 'kafkajs';
import { expect, onTestFinished, test } from 'vitest';
import { z } from 'zod';
import { confluentJson, defineEvents, type ReceivedEvent } from '../../src/index.ts';
import { consumeKafka, kafka } from '../../src/publishers/kafka.ts';
import { kafkaReader } from '../publishers/kafka-reader.ts';
import { withScenario } from '../support/relay-scenario.ts';
import { fileService } from '../support/services.ts';
import { until } from '../support/wait.ts';

const registry = fileService('schema-registry');
const broker = fileService('kafka');
const events = defineEvents({ 'order.created': { schema: z.object({ n: z.number().int() }) } });

test.skipIf(registry.given)(
  'over real Kafka, with a real registry that is down at first: a consumer reads every event once, in order, and no attempt is used',
  withScenario(async (scenario) => {
    const topic = await kafkaReader(() => broker.url).createTopic({}, 3);
    await scenario.emit(
      Array.from({ length: 300 }, (_, n) => ({ aggregateId: `o${n % 7}`, type: 'order.created', payload: { n } })),
    );
    await registry.own.stop();
    const relay = scenario.idleRelay('r', {
      handlers: {},
      retry: { delaysMs: [10] },
      destinations: {
        orders: {
          publisher: kafka({ brokers: [broker.url] }),
          serializer: confluentJson({ registry: registry.url, events, register: true, subject: '{topic}-value' }),
          probeDelayMs: 100,
          probeDelayMsMax: 500,
        },
      },
      route: () => ({ to: 'orders', topic }),
    });
    const told: string[] = [];
    relay.on('destinationDown', ({ error }) => told.push(error));
    await relay.start();
    await until(() => told.length > 0, { what: 'the outage is noticed' });
    await registry.own.start();

    const received: ReceivedEvent[] = [];
    const consumer = consumeKafka({
      consumer: new Kafka({ brokers: [broker.url], logLevel: logLevel.NOTHING }).consumer({ groupId: topic }),
      topics: [topic],
      fromBeginning: true,
      deadLetter: 'skip',
      events,
      handle: (event) => void received.push(event),
    });
    onTestFinished(() => consumer.stop());
    await consumer.start();
    await until(() => received.length >= 300, { what: 'all are consumed', timeoutMs: 60_000 });
    for (let key = 0; key < 7; key++) {
      const numbers = received
        .filter((event) => event.key === `o${key}`)
        .map(({ payload }) => (payload as { n: number }).n);
      expect(numbers).toEqual(numbers.map((_, index) => 7 * index + key));
    }
    expect(new Set(received.map(({ id }) => id)).size).toBe(300);
    expect(relay.stats()).toMatchObject({ failed: 0, deadLettered: 0 });
    expect(await scenario.db.query('select from postcommit.outbox_failures')).toEqual([]);

    // What is on the wire is the id that the registry has for the subject of the topic.
    const response = await fetch(`${registry.url}/subjects/${topic}-value/versions/latest`);
    const { id, schemaType } = (await response.json()) as { id: number; schemaType: string };
    const frame = Buffer.alloc(5);
    frame.writeUInt32BE(id, 1);
    const [message] = await rawValues(topic);
    expect(message?.subarray(0, 5)).toEqual(frame);
    expect(schemaType).toBe('JSON');
  }),
  180_000,
);

/** The first value of the topic, as bytes. */
async function rawValues(topic: string): Promise<Buffer[]> {
  const values: Buffer[] = [];
  const consumer = new Kafka({ brokers: [broker.url], logLevel: logLevel.NOTHING }).consumer({
    groupId: `${topic}-raw`,
  });
  await consumer.connect();
  await consumer.subscribe({ topic, fromBeginning: true });
  await consumer.run({
    eachMessage: async ({ message }) => {
      if (message.value) values.push(message.value);
    },
  });
  await until(() => values.length > 0, { what: 'a message', timeoutMs: 30_000 });
  await consumer.disconnect();
  return values;
}
