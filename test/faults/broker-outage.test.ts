import { setTimeout as sleep } from 'node:timers/promises';
import { describe, expect, test } from 'vitest';
import { kafka } from '../../src/publishers/kafka.ts';
import { nats } from '../../src/publishers/nats.ts';
import type { Publisher } from '../../src/publishers/publisher.ts';
import { rabbitmq } from '../../src/publishers/rabbitmq.ts';
import { type BrokerTopic, kafkaTopic, natsStream, outOfOrder, rabbitMqQueue } from '../support/broker-contents.ts';
import { RelayScenario } from '../support/relay-scenario.ts';
import { type FileService, fileService } from '../support/services.ts';
import { until } from '../support/wait.ts';

const eventCount = 10_000;
const aggregates = 200;
const outageMs = 60_000;

interface Broker {
  server: FileService;
  publisher: (url: string) => Publisher;
  topic: (url: string) => Promise<BrokerTopic>;
}

const brokers: Record<string, Broker> = {
  Kafka: { server: fileService('kafka'), publisher: (url) => kafka({ brokers: [url] }), topic: kafkaTopic },
  RabbitMQ: {
    server: fileService('rabbitmq'),
    publisher: (url) => rabbitmq({ url, confirmTimeoutMs: 2_000 }),
    topic: rabbitMqQueue,
  },
  NATS: {
    server: fileService('nats'),
    publisher: (servers) => nats({ servers, ackTimeoutMs: 2_000 }),
    topic: natsStream,
  },
};

/** So many events of each aggregate, numbered from `from` on, in transactions of some aggregates each. */
async function emitRound(scenario: RelayScenario, from: number, perAggregate: number): Promise<void> {
  for (let first = 0; first < aggregates; first += 40) {
    const events = Array.from({ length: 40 * perAggregate }, (_, index) => ({
      aggregateId: `a${first + (index % 40)}`,
      payload: { n: from + Math.floor(index / 40) },
    }));
    await scenario.emit(events);
  }
}

async function attemptsUsed(scenario: RelayScenario) {
  const [row] = await scenario.db.query(
    `select (select count(*)::integer from postcommit.outbox_failures) as failures,
            (select count(*)::integer from postcommit.outbox_dead_letters) as dead,
            (select max(attempts) from postcommit.outbox_deliveries) as attempts`,
  );
  return row;
}

// At the same time: the minute of the outage is the same minute for all.
describe.concurrent.each(Object.entries(brokers))('%s stopped for a minute', (_, { server, publisher, topic }) => {
  test.skipIf(server.given)(
    'while 10,000 events are emitted: all arrive, in order, without an attempt or a dead letter',
    async () => {
      const scenario = await RelayScenario.create();
      try {
        const place = await topic(server.url);
        const relay = await scenario.relay('r', {
          handlers: {},
          destinations: { events: { publisher: publisher(server.url), publishTimeoutMs: 5_000 } },
          route: () => ({ to: 'events', topic: place.name }),
        });
        await emitRound(scenario, 0, 5);
        await until(() => relay.stats().delivered > 0, { what: 'events flow', timeoutMs: 30_000 });
        const stoppedAt = performance.now();
        await server.own.stop();
        // In rounds over the whole outage, so that it is met by events that wait and by new ones.
        for (let round = 0; round < 9; round++) {
          await emitRound(scenario, 5 + round * 5, 5);
          await sleep(Math.max(0, stoppedAt + ((round + 1) * outageMs) / 9 - performance.now()));
        }
        await server.own.start();
        const arrivals = await place.arrivals(eventCount, 90_000);
        expect(new Set(arrivals.map(({ id }) => id)).size).toBe(eventCount);
        expect(outOfOrder(arrivals)).toEqual([]);
        await until(() => relay.stats().delivered === eventCount, { what: 'all is written down', timeoutMs: 30_000 });
        expect(await attemptsUsed(scenario)).toEqual({ failures: 0, dead: 0, attempts: 1 });
        expect(relay.stats()).toMatchObject({ failed: 0, deadLettered: 0 });
        expect(relay.stats().unavailable).toBeGreaterThan(5_000);
      } finally {
        await scenario.close();
      }
    },
    300_000,
  );
});
