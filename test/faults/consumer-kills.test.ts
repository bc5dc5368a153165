import { describe, test } from 'vitest';
import { kafkaTopic } from '../support/broker-contents.ts';
import { withScenario } from '../support/relay-scenario.ts';
import { fileService } from '../support/services.ts';
import { orderedQueue, surviveKills } from './consumer-scene.ts';

const kafkaServer = fileService('kafka');
const rabbitServer = fileService('rabbitmq');
const few = { events: 300, kills: 1, workMs: 50 };

describe('relay and consumer killed while events are delivered: every effect once, in order per key', () => {
  test(
    'Kafka, with a rebalance',
    withScenario(async (scenario) => {
      const { name: topic } = await kafkaTopic(kafkaServer.url);
      await surviveKills(scenario, { broker: 'kafka', address: kafkaServer.url, topic, ...few });
    }),
    180_000,
  );

  test(
    'RabbitMQ',
    withScenario(async (scenario) => {
      const topic = await orderedQueue(rabbitServer.url);
      await surviveKills(scenario, { broker: 'rabbitmq', address: rabbitServer.url, topic, ...few });
    }),
    180_000,
  );
});
