import { type KafkaOptions, kafka } from '../../../src/publishers/kafka.ts';
import type { PublisherHarness } from '../../../src/testing/index.ts';
import type { KafkaReader } from '../kafka-reader.ts';

/** The same for every client, but for what breaks the broker. */
export function kafkaHarness(reader: KafkaReader, options: () => KafkaOptions): PublisherHarness {
  return {
    createPublisher: () => kafka(options()),
    createTopic: () => reader.createTopic(),
    read: (topic, count) => reader.read(topic, count),
    oversizedBytes: 2_000_000,
    malformed: (message) => ({ ...message, topic: 'no such/topic name' }),
  };
}
