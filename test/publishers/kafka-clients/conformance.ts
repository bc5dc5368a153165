import assert from 'node:assert/strict';
import { setTimeout as sleep } from 'node:timers/promises';
import { partitionOfKey } from '../../../src/publishers/kafka/partition.ts';
import { type KafkaOptions, kafka } from '../../../src/publishers/kafka.ts';
import type { Message, Publisher } from '../../../src/publishers/publisher.ts';
import {
  type ConformanceCheck,
  type PublisherHarness,
  publisherConformance,
  testMessage,
} from '../../../src/testing/index.ts';
import { deferred, until } from '../../support/wait.ts';
import type { KafkaReader } from '../kafka-reader.ts';
import { kafkaHarness } from './harness.ts';
import { type BrokerId, startTwoBrokers } from './two-brokers.ts';

export interface KafkaConformanceOptions {
  reader: KafkaReader;
  /** `host:port` of the real broker. Not called before a check runs. */
  broker: () => string;
  /** The client under test, connected to these brokers. */
  clientOptions: (brokers: string[]) => KafkaOptions;
  disturbances?: Pick<PublisherHarness, 'outage' | 'freeze'>;
}

/** The suite that every publisher passes, and what every Kafka client must pass besides. */
export function kafkaConformance(options: KafkaConformanceOptions): ConformanceCheck[] {
  const { reader, broker, clientOptions, disturbances } = options;
  const harness = { ...kafkaHarness(reader, () => clientOptions([broker()])), ...disturbances };
  const checks = [...publisherConformance(harness), ...refusalChecks(options), leaderMoveCheck(options)];
  return [...checks, ...clusterChangeChecks(options)];
}

/** What a rolling restart of the brokers does to every partition: it must not count as an outage. */
function leaderMoveCheck({ reader, broker, clientOptions }: KafkaConformanceOptions): ConformanceCheck {
  return {
    name: 'a partition whose leader moves during a call is followed, and its records are stored once',
    run: async () => {
      const topic = await reader.createTopic({}, 4);
      let moved = false;
      const script = {
        leaderOf: (partition: number): BrokerId => (moved && partition % 2 === 1 ? 2 : 1),
        onProduce: () => {
          moved = true;
        },
        onStored: () => {},
      };
      const cluster = await startTwoBrokers({ broker: broker(), topic, partitionCount: 4, ...script });
      try {
        await withPublisher(clientOptions(cluster.addresses), async (publisher) => {
          const batch = hundredMessages(topic, 'moved');
          const outcomes = await publisher.publish(batch, AbortSignal.timeout(timeoutMs));
          for (const outcome of outcomes) assert.deepEqual(outcome, { kind: 'delivered' });
          assert.equal((await reader.read(topic, 0)).length, batch.length);
        });
      } finally {
        await cluster.close();
      }
    },
  };
}

const timeoutMs = 20_000;

/** Not for a custom producer: what it stored before a refusal is unknown, and may be stored again. */
function refusalChecks({ reader, broker, clientOptions }: KafkaConformanceOptions): ConformanceCheck[] {
  const check = (name: string, { partitions, everyNth }: { partitions: number; everyNth: number }) => ({
    name,
    run: async () => {
      // A compacted topic refuses records without a key, together with all others of their partition.
      const topic = await reader.createTopic({ 'cleanup.policy': 'compact' }, partitions);
      await withPublisher(clientOptions([broker()]), async (publisher) => {
        const batch = hundredMessages(topic, 'mixed').map((message, index) =>
          index % everyNth === 0 ? testMessage({ topic }) : message,
        );
        const outcomes = await publisher.publish(batch, AbortSignal.timeout(timeoutMs));
        const kinds = outcomes.map(({ kind }) => kind);
        const expected = batch.map(({ key }) => (key === null ? 'rejected' : 'delivered'));
        assert.deepEqual(kinds, expected, JSON.stringify(outcomes));
        const good = batch.filter(({ key }) => key !== null).map(({ eventId }) => eventId);
        const stored = (await reader.read(topic, 0)).map(({ eventId }) => eventId);
        assert.deepEqual(stored.sort(), good.sort());
      });
    },
  });
  return [
    check('a record that the broker refuses is a reject, and the others of its batch are stored once', {
      partitions: 6,
      everyNth: 100,
    }),
    check('many records that the broker refuses are rejects, and the others of their partition are stored once', {
      partitions: 1,
      everyNth: 9,
    }),
  ];
}

/** The cluster changes without the client's knowledge: what the publisher calls delivered is in the topic. */
export function clusterChangeChecks({ reader, broker, clientOptions }: KafkaConformanceOptions): ConformanceCheck[] {
  return [
    {
      name: 'a topic that is recreated with fewer partitions: all that is delivered is stored',
      run: async () => {
        const topic = await reader.createTopic({}, 6);
        await withPublisher(clientOptions([broker()]), async (publisher) => {
          await publishUntilOk(publisher, hundredMessages(topic, 'before'));
          await reader.recreateTopic(topic, 2);
          const batch = hundredMessages(topic, 'after');
          await assertStored(reader, topic, await publishOnce(publisher, batch));
          await assertStored(reader, topic, await publishUntilOk(publisher, batch));
        });
      },
    },
    {
      name: 'a partition whose leader moves away and back during a call: all that is delivered is stored',
      run: async () => {
        const topic = await reader.createTopic({}, 2);
        const move = new LeaderMove();
        const cluster = await startTwoBrokers({ broker: broker(), topic, partitionCount: 2, ...move.script });
        try {
          await withPublisher(clientOptions(cluster.addresses), async (publisher) => {
            const batch = [0, 1].map((partition) =>
              testMessage({ topic, key: keyIn(partition, 2), body: `"${partition}"` }),
            );
            await assertStored(reader, topic, await publishOnce(publisher, batch));
            await assertStored(reader, topic, await publishUntilOk(publisher, batch));
          });
        } finally {
          await cluster.close();
        }
      },
    },
  ];
}

/**
 * Broker 1 leads both partitions. When it is sent partition 1, that partition moves to broker 2; when broker 2 is sent
 * it, and broker 1 has stored partition 0, it moves back.
 */
class LeaderMove {
  #leaderOfSecond: BrokerId = 1;
  #movedAway = false;
  #movedBack = false;
  readonly #firstStored = deferred();

  readonly script = {
    leaderOf: (partition: number): BrokerId => (partition === 0 ? 1 : this.#leaderOfSecond),
    onProduce: async (broker: BrokerId, partitions: readonly number[]) => {
      if (!partitions.includes(1)) return;
      if (broker === 1 && !this.#movedAway) {
        this.#movedAway = true;
        this.#leaderOfSecond = 2;
      } else if (broker === 2 && !this.#movedBack) {
        // A client may send to one broker after the other: then nothing is stored before this request is answered.
        await Promise.race([this.#firstStored.promise, sleep(1_000, undefined, { ref: false })]);
        this.#movedBack = true;
        this.#leaderOfSecond = 1;
      }
    },
    onStored: (broker: BrokerId, partitions: readonly number[]) => {
      if (broker === 1 && partitions.includes(0)) this.#firstStored.resolve();
    },
  };
}

async function withPublisher(options: KafkaOptions, work: (publisher: Publisher) => Promise<void>): Promise<void> {
  const publisher = kafka(options);
  try {
    await publisher.connect(AbortSignal.timeout(timeoutMs));
    await work(publisher);
  } finally {
    await publisher.close();
  }
}

/** Returns the messages that are delivered. */
async function publishOnce(publisher: Publisher, batch: readonly Message[]): Promise<Message[]> {
  const outcomes = await publisher.publish(batch, AbortSignal.timeout(timeoutMs));
  for (const outcome of outcomes) assert.notEqual(outcome.kind, 'rejected', JSON.stringify(outcome));
  return batch.filter((_, index) => outcomes[index]?.kind === 'delivered');
}

/** Like the relay: publishes what is left again, once the publisher's health check passes, until all is delivered. */
async function publishUntilOk(publisher: Publisher, batch: readonly Message[]): Promise<readonly Message[]> {
  const deadline = AbortSignal.timeout(timeoutMs);
  let left = batch;
  while (left.length > 0) {
    assert.ok(!deadline.aborted, `${left.length} of ${batch.length} messages are not delivered after ${timeoutMs} ms`);
    const delivered = new Set(await publishOnce(publisher, left));
    left = left.filter((message) => !delivered.has(message));
    if (left.length > 0)
      await until(() => publisher.health(deadline).then(() => true), { what: 'the broker answers', timeoutMs });
  }
  return batch;
}

async function assertStored(reader: KafkaReader, topic: string, messages: readonly Message[]): Promise<void> {
  // A delivered message is stored before the broker answers: there is nothing to wait for.
  const stored = new Set((await reader.read(topic, 0)).map(({ eventId }) => eventId));
  const lost = messages.filter(({ eventId }) => !stored.has(eventId));
  assert.equal(lost.length, 0, `${lost.length} of ${messages.length} messages are delivered and not in the topic`);
}

function hundredMessages(topic: string, name: string): Message[] {
  return Array.from({ length: 100 }, (_, number) =>
    testMessage({ topic, key: `order:${number}`, body: JSON.stringify({ name, number }) }),
  );
}

function keyIn(partition: number, partitionCount: number): string {
  for (let number = 0; ; number++) {
    const key = `order:${number}`;
    if (partitionOfKey(key, partitionCount) === partition) return key;
  }
}
