import { afterAll, beforeAll, describe, it } from 'vitest';
import { sqs } from '../../src/publishers/sqs.ts';
import { type PublisherHarness, publisherConformance } from '../../src/testing/index.ts';
import { fileService } from '../support/services.ts';
import { QueueConsumer, testAccess } from './aws-queue.ts';

const server = fileService('sqs');
let consumer: QueueConsumer;
beforeAll(() => {
  consumer = new QueueConsumer(server.url);
});
afterAll(() => consumer?.close());

function harnessFor(kind: 'fifo' | 'standard'): PublisherHarness {
  return {
    createPublisher: () => sqs({ ...testAccess, endpoint: server.url, fifo: kind === 'fifo' }),
    createTopic: () => consumer.createQueue(kind),
    read: (queueUrl, count) => consumer.read(queueUrl, count),
    oversizedBytes: 1_048_576,
    malformed: (message) => ({ ...message, body: 'a NUL \0 in the text' }),
    // Its data is in memory, so it cannot be stopped and brought back with what it had.
    ...(server.given ? {} : { freeze: server.disturbances.freeze as NonNullable<PublisherHarness['freeze']> }),
  };
}

describe.each(['fifo', 'standard'] as const)('the SQS publisher, %s queues', (kind) => {
  for (const check of publisherConformance(harnessFor(kind))) it(check.name, check.run, 120_000);
});
