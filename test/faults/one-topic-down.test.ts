import { randomUUID } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';
import { CreateQueueCommand, SQSClient } from '@aws-sdk/client-sqs';
import { jetstreamManager } from '@nats-io/jetstream';
import { connect as connectNats } from '@nats-io/transport-node';
import { describe, expect, onTestFinished, test } from 'vitest';
import { nats } from '../../src/publishers/nats.ts';
import type { Publisher } from '../../src/publishers/publisher.ts';
import { sqs } from '../../src/publishers/sqs.ts';
import { sqsError, startAwsFaults } from '../publishers/aws-faults.ts';
import { testAccess } from '../publishers/aws-queue.ts';
import { type RelayScenario, withScenario } from '../support/relay-scenario.ts';
import { fileService } from '../support/services.ts';
import { until } from '../support/wait.ts';

const natsServer = fileService('nats');
const sqsServer = fileService('sqs');

interface Topics {
  publisher: Publisher;
  up: string;
  down: string;
}

/** A stream that stores what it gets and never acknowledges it. */
async function natsTopics(): Promise<Topics> {
  const [up, down] = [`up-${randomUUID()}`, `down-${randomUUID()}`];
  const connection = await connectNats({ servers: natsServer.url });
  const { streams } = await jetstreamManager(connection);
  await streams.add({ name: up, subjects: [up] });
  await streams.add({ name: down, subjects: [down], no_ack: true });
  await connection.close();
  return { publisher: nats({ servers: natsServer.url }), up, down };
}

/** A queue that AWS throttles. */
async function sqsTopics(): Promise<Topics> {
  const [up, down] = [`up-${randomUUID()}`, `down-${randomUUID()}`];
  const admin = new SQSClient({ ...testAccess, endpoint: sqsServer.url });
  for (const QueueName of [up, down]) await admin.send(new CreateQueueCommand({ QueueName }));
  admin.destroy();
  const faults = await startAwsFaults(sqsServer.url);
  onTestFinished(() => faults.close());
  faults.fault = ({ action, body }) => {
    if (action !== 'SendMessageBatch' || !JSON.parse(body).QueueUrl.endsWith(down)) return undefined;
    return sqsError(400, 'ThrottlingException');
  };
  return { publisher: sqs({ ...testAccess, endpoint: faults.url }), up, down };
}

async function emitBoth(scenario: RelayScenario, rounds: number): Promise<void> {
  for (let round = 0; round < rounds; round++) {
    await scenario.emit(['up', 'down'].map((type) => ({ aggregateId: randomUUID(), type })));
    await sleep(30);
  }
}

describe.each([
  ['a NATS stream that does not acknowledge', natsTopics],
  ['an SQS queue that is throttled', sqsTopics],
])('%s, at default settings', (_, makeTopics) => {
  test('does not stop the others of its destination', () =>
    withScenario(async (scenario) => {
      const { publisher, ...topics } = await makeTopics();
      const relay = await scenario.relay('r', {
        handlers: {},
        destinations: { events: publisher },
        route: ({ type }) => ({ to: 'events', topic: topics[type as 'up' | 'down'] }),
      });
      const latenciesMs: number[] = [];
      relay.on('delivered', ({ latencyMs }) => latenciesMs.push(latencyMs));
      await emitBoth(scenario, 20);
      await until(() => latenciesMs.length === 20, { what: 'those of the other topic arrive', timeoutMs: 25_000 });
      await until(() => relay.stats().failed > 0, { what: 'its events fail by themselves', timeoutMs: 25_000 });
      const told: string[] = [];
      relay.on('destinationDown', ({ error }) => told.push(error));
      await emitBoth(scenario, 60);
      await until(() => latenciesMs.length === 80, { what: 'the next ones arrive too' });
      expect(told).toEqual([]);
      expect(Math.max(...latenciesMs.slice(20))).toBeLessThan(1_500);
    })());
});
