// One measurement in a process of its own: the relay, or the client alone. Answers by IPC.
import { setTimeout as sleep } from 'node:timers/promises';
import { monotonicMs } from '../clock.ts';
import { aggregateOf, type Backlog, payloadOf } from '../contenders/contender.ts';
import { postcommit } from '../contenders/postcommit.ts';
import { watchFirstClaim } from '../first-claim.ts';
import type { Broker, MemoryEvent } from './broker.ts';
import { brokerNamed } from './registry.ts';

export interface BrokerTask {
  phase: 'relay' | 'client';
  broker: string;
  url: string;
  topic: string;
  connectionString: string;
  backlog: Backlog;
}

export interface BrokerResult {
  tookMs: number;
  node: string;
}

const dist = (path: string) => import(new URL(`../../dist/${path}`, import.meta.url).href);

/** The events of the backlog as objects. Their messages are the same, byte for byte, that the relay hands to the publisher. */
async function eventsOf({ backlog, topic }: BrokerTask): Promise<MemoryEvent[]> {
  const [{ envelope }, { DeliveredEvent }, { toMessage }, { uuidV7 }] = await Promise.all([
    dist('wire/envelope.js'),
    dist('wire/delivered-event.js'),
    dist('relay/deliver/destinations/message.js'),
    dist('uuid.js'),
  ]);
  const serializer = envelope();
  return Array.from({ length: backlog.events }, (_, index) => {
    const aggregateId = aggregateOf(index + 1, backlog.aggregates);
    const row = {
      seq: String(index + 1),
      key: aggregateId,
      attempts: 0,
      done: [],
      id: uuidV7(),
      aggregateType: 'order',
      aggregateId,
      type: 'order.created',
      schemaVersion: 1,
      orderingKey: null,
      headersJson: '{}',
      createdAtMs: Date.now(),
      shelved: [],
    };
    const payload = payloadOf(index + 1, backlog.payloadBytes);
    const leg = { target: 'b', to: 'b', topic, key: aggregateId, headers: undefined, exchange: undefined };
    return {
      toMessage() {
        const event = new DeliveredEvent(row, JSON.stringify(payload));
        return toMessage(event, leg, serializer.serialize(event, { cloudEventsPrefix: 'ce-' }));
      },
    };
  });
}

/** From the first claim to the last event that is settled in the database: delivered counts what is written down. */
async function relay(broker: Broker, { url, topic, connectionString, backlog }: BrokerTask): Promise<number> {
  const { createRelay } = await dist('index.js');
  const firstClaim = watchFirstClaim(postcommit.packageJson, postcommit.claimStatement);
  const running = createRelay({
    connectionString,
    destinations: { b: await broker.createPublisher(url) },
    route: () => ({ to: 'b', topic }),
  });
  running.on('destinationDown', ({ error }: { error: string }) => console.error(`${broker.name} is away: ${error}`));
  await running.start();
  while (running.stats().delivered < backlog.events) await sleep(2);
  const endedAtMs = monotonicMs();
  await running.stop();
  const { failed, deadLettered, unavailable } = running.stats();
  if (failed + deadLettered + unavailable > 0)
    throw new Error(`${broker.name}: ${failed} failed, ${deadLettered} dead letters, ${unavailable} unavailable.`);
  return endedAtMs - (firstClaim.moment()?.atMs ?? Number.NaN);
}

const task = JSON.parse(process.argv[2] ?? '') as BrokerTask;
const broker = brokerNamed(task.broker);
const tookMs =
  task.phase === 'relay'
    ? await relay(broker, task)
    : await broker.publishAll(task.url, task.topic, await eventsOf(task));
const result: BrokerResult = { tookMs, node: process.version };
process.send?.(result, () => process.exit(0));
