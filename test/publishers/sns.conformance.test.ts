import { afterAll, beforeAll, describe, it } from 'vitest';
import { sns } from '../../src/publishers/sns.ts';
import { type PublisherHarness, publisherConformance } from '../../src/testing/index.ts';
import { fileService } from '../support/services.ts';
import { testAccess } from './aws-queue.ts';
import { TopicConsumer } from './aws-topic.ts';

const server = fileService('sqs');
let consumer: TopicConsumer;
beforeAll(() => {
  consumer = new TopicConsumer(server.url);
});
afterAll(() => consumer?.close());

function harnessFor(kind: 'fifo' | 'standard'): PublisherHarness {
  return {
    createPublisher: () => sns({ ...testAccess, endpoint: server.url, fifo: kind === 'fifo' }),
    createTopic: () => consumer.createTopic(kind),
    read: (topicArn, count) => consumer.read(topicArn, count),
    oversizedBytes: 262_144,
    malformed: (message) => ({ ...message, body: 'a NUL \0 in the text' }),
    // Its data is in memory, so it cannot be stopped and brought back with what it had.
    ...(server.given ? {} : { freeze: server.disturbances.freeze as NonNullable<PublisherHarness['freeze']> }),
  };
}

describe.each(['fifo', 'standard'] as const)('the SNS publisher, %s topics', (kind) => {
  for (const check of publisherConformance(harnessFor(kind))) it(check.name, check.run, 120_000);
});
