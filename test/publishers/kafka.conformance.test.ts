import { describe, it } from 'vitest';
import { publisherConformance } from '../../src/testing/index.ts';
import { fileService } from '../support/services.ts';
import { kafkaHarness } from './kafka-clients/harness.ts';
import { kafkaReader } from './kafka-reader.ts';

const server = fileService('kafka');
const reader = kafkaReader(() => server.url);

const harness = { ...kafkaHarness(reader, () => ({ brokers: [server.url] })), ...server.disturbances };

describe('the Kafka publisher', () => {
  for (const check of publisherConformance(harness)) it(check.name, check.run, 120_000);
});
