import { describe, expect, test } from 'vitest';
import { kafka } from '../../src/publishers/kafka.ts';
import { kafkaReader } from '../publishers/kafka-reader.ts';
import { withScenario } from '../support/relay-scenario.ts';
import { fileService } from '../support/services.ts';
import { until } from '../support/wait.ts';

const server = fileService('kafka');
const reader = kafkaReader(() => server.url);

const events = (count: number) => Array.from({ length: count }, (_, index) => ({ aggregateId: `a${index}` }));

describe('a Kafka topic that is deleted and recreated with fewer partitions under a running relay', () => {
  test(
    'has every event that is SENT and was emitted since',
    withScenario(async (scenario) => {
      const topic = await reader.createTopic({}, 6);
      const relay = await scenario.relay('r', {
        handlers: {},
        retry: { baseMs: 100, capMs: 500, attemptsMax: 1_000 },
        destinations: {
          events: {
            publisher: kafka({ brokers: [server.url], autoCreateTopics: false }),
            probeDelayMs: 100,
            probeDelayMsMax: 500,
          },
        },
        route: () => ({ to: 'events', topic }),
      });
      const sent = async () => {
        const rows = await scenario.db.query<{ id: string }>(
          `select id from postcommit.outbox_status where status = 'SENT'`,
        );
        return rows.map(({ id }) => id);
      };
      const before = await scenario.emit(events(200));
      await until(async () => (await sent()).length === before.length, { what: 'the relay delivers' });

      const since: string[] = [];
      await reader.recreateTopic(topic, 2, async () => since.push(...(await scenario.emit(events(50)))));
      since.push(...(await scenario.emit(events(300))));
      const all = before.length + since.length;
      await until(async () => (await sent()).length === all, { what: 'all are SENT', timeoutMs: 60_000 });

      const stored = new Set((await reader.read(topic, 0)).map(({ eventId }) => eventId));
      expect(since.filter((id) => !stored.has(id))).toEqual([]);
      expect(relay.stats().deadLettered).toBe(0);
    }),
    120_000,
  );
});
