import { randomUUID } from 'node:crypto';
import { jetstreamManager } from '@nats-io/jetstream';
import { connect as connectNats } from '@nats-io/transport-node';
import { connect as connectRabbitMq } from 'amqplib';
import { Kafka, logLevel } from 'kafkajs';
import { until } from './wait.ts';

/** What a consumer found: the event's id, and the aggregate and number that the test put into it. */
export interface Arrival {
  id: string;
  aggregate: string;
  n: number;
}

/** A place in a real broker that a test publishes to, and how to see everything that arrived there, in order. */
export interface BrokerTopic {
  name: string;
  /** All that is there, once `count` different events are. */
  arrivals(count: number, timeoutMs?: number): Promise<Arrival[]>;
}

export async function kafkaTopic(broker: string, partitions = 3): Promise<BrokerTopic> {
  const client = new Kafka({ brokers: [broker], logLevel: logLevel.NOTHING });
  const name = `events.${randomUUID()}`;
  const admin = client.admin();
  await admin.connect();
  await admin.createTopics({ topics: [{ topic: name, numPartitions: partitions }], waitForLeaders: true });
  await admin.disconnect();
  return {
    name,
    async arrivals(count, timeoutMs = 60_000) {
      const consumer = client.consumer({ groupId: randomUUID(), maxWaitTimeInMs: 100, retry: { retries: 20 } });
      const found = new Collector();
      await consumer.connect();
      try {
        await consumer.subscribe({ topic: name, fromBeginning: true });
        await consumer.run({
          eachBatch: async ({ batch }) => {
            for (const { value } of batch.messages) found.add(String(value));
          },
        });
        await found.until(count, timeoutMs);
        return found.arrivals;
      } finally {
        await consumer.disconnect();
      }
    },
  };
}

export async function rabbitMqQueue(url: string): Promise<BrokerTopic> {
  const name = `events-${randomUUID()}`;
  const connection = await connectRabbitMq(url);
  const channel = await connection.createChannel();
  await channel.assertQueue(name, { durable: true });
  await connection.close();
  return {
    name,
    async arrivals(count, timeoutMs = 60_000) {
      const reading = await connectRabbitMq(url);
      const found = new Collector();
      try {
        const consumer = await reading.createChannel();
        // Not acknowledged: what was read stays there for the next look.
        await consumer.consume(name, (message) => message && found.add(message.content.toString()));
        await found.until(count, timeoutMs);
        return found.arrivals;
      } finally {
        await reading.close();
      }
    },
  };
}

export async function natsStream(url: string): Promise<BrokerTopic> {
  const name = `events-${randomUUID()}`;
  const connection = await connectNats({ servers: url });
  await (await jetstreamManager(connection)).streams.add({ name, subjects: [name] });
  await connection.close();
  return {
    name,
    async arrivals(count, timeoutMs = 60_000) {
      const reading = await connectNats({ servers: url });
      const found = new Collector();
      try {
        const consumer = await (await jetstreamManager(reading)).jetstream().consumers.get(name, {});
        const messages = await consumer.consume();
        void (async () => {
          for await (const message of messages) found.add(message.string());
        })();
        await found.until(count, timeoutMs);
        return found.arrivals;
      } finally {
        await reading.close();
      }
    },
  };
}

class Collector {
  readonly arrivals: Arrival[] = [];
  readonly #ids = new Set<string>();

  add(envelope: string): void {
    const { eventId: id, aggregate, data } = JSON.parse(envelope);
    this.arrivals.push({ id, aggregate: aggregate.id, n: data.n });
    this.#ids.add(id);
  }

  /** Until so many different events are there, and nothing more arrives for a moment. */
  async until(count: number, timeoutMs: number): Promise<void> {
    await until(() => this.#ids.size >= count, { what: `${count} events have arrived`, timeoutMs });
    let last = -1;
    await until(
      () => {
        const quiet = this.arrivals.length === last;
        last = this.arrivals.length;
        return quiet;
      },
      { what: 'nothing more arrives' },
    );
  }
}

/** Aggregates of which an event came before an earlier one. A repetition of what had come before is none. */
export function outOfOrder(arrivals: readonly Arrival[]): string[] {
  const highest = new Map<string, number>();
  const seen = new Set<string>();
  const violations: string[] = [];
  for (const { id, aggregate, n } of arrivals) {
    if (seen.has(id)) continue;
    seen.add(id);
    const last = highest.get(aggregate) ?? -1;
    if (n !== last + 1) violations.push(`${aggregate}: ${n} after ${last}`);
    highest.set(aggregate, n);
  }
  return violations;
}
