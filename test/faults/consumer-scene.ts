import { randomUUID } from 'node:crypto';
import { connect } from 'amqplib';
import { expect, onTestFinished } from 'vitest';
import { type Child, endChild, startChild } from '../support/child.ts';
import type { RelayScenario } from '../support/relay-scenario.ts';
import { until } from '../support/wait.ts';

export interface ConsumerFaults {
  broker: 'kafka' | 'rabbitmq';
  address: string;
  topic: string;
  events: number;
  /** How often the relay and the consumer are killed, each. */
  kills: number;
  /** How long the consumer takes for an event. */
  workMs: number;
}

export async function orderedQueue(url: string): Promise<string> {
  const name = `accounts-${randomUUID()}`;
  const connection = await connect(url);
  const channel = await connection.createChannel();
  await channel.assertQueue(name, { durable: true, arguments: { 'x-single-active-consumer': true } });
  await connection.close();
  return name;
}

/**
 * Emits events of 20 keys, and kills relays and consumers with SIGKILL while they are delivered. With Kafka a second consumer joins and
 * leaves the group meanwhile, while the first one is in the middle of a batch. Every effect must be there once, in order per key.
 */
export async function surviveKills(scenario: RelayScenario, faults: ConsumerFaults): Promise<void> {
  const { broker, address, topic, events, kills, workMs } = faults;
  await scenario.db.query('create table effects (id bigserial primary key, event_id uuid, key text, n integer)');
  const keys = 20;
  for (let at = 0; at < events; at += 500) {
    const count = Math.min(500, events - at);
    await scenario.emit(
      Array.from({ length: count }, (_, index) => ({
        aggregateId: `a${(at + index) % keys}`,
        payload: { n: Math.floor((at + index) / keys) },
      })),
    );
  }
  const children: Child[] = [];
  onTestFinished(async () => {
    await Promise.all(children.map(endChild));
  });
  const start = (script: string, args: string[]) => {
    const child = startChild(script, args);
    children.push(child);
    return child;
  };
  const startRelay = () => start('test/faults/consumed-relay.child.ts', [scenario.db.url, broker, address, topic]);
  const startConsumer = (hold: 'hold' | '' = '') =>
    start('test/faults/consumer.child.ts', [broker, address, topic, scenario.db.url, String(workMs), hold]);
  const effects = async () => (await scenario.db.query('select count(*)::int as n from effects'))[0].n as number;
  const reach = (count: number) =>
    until(async () => (await effects()) >= count, { what: `${count} effects`, timeoutMs: 90_000 });

  let relay = startRelay();
  let consumer = startConsumer();
  for (let kill = 1; kill <= kills; kill++) {
    await reach(Math.floor((events * kill) / (kills + 2)));
    consumer.kill('SIGKILL');
    relay.kill('SIGKILL');
    await Promise.all([consumer.exited, relay.exited]);
    relay = startRelay();
    consumer = startConsumer(broker === 'kafka' && kill === kills ? 'hold' : '');
  }
  const second = broker === 'kafka' ? await rebalanceMidBatch(consumer, startConsumer, effects) : undefined;
  await reach(Math.floor((events * (kills + 1)) / (kills + 2)));
  second?.kill('SIGTERM');
  await second?.next(({ event }) => event === 'stopped', 60_000);
  await reach(events);
  consumer.kill('SIGTERM');
  await consumer.next(({ event }) => event === 'stopped', 60_000);

  const found = await scenario.db.query('select event_id, key, n from effects order by id');
  expect(found).toHaveLength(events);
  expect(new Set(found.map(({ event_id }) => event_id)).size).toBe(events);
  for (let key = 0; key < keys; key++) {
    const numbers = found.filter((row) => row.key === `a${key}`).map(({ n }) => n);
    expect(numbers).toEqual(numbers.map((_, index) => index));
  }
}

/** The consumer waits in the middle of a batch until another one has joined the group. Returns that other one. */
async function rebalanceMidBatch(
  consumer: Child,
  startOther: () => Child,
  effects: () => Promise<number>,
): Promise<Child> {
  await consumer.next(({ event }) => event === 'holding', 60_000);
  const before = await effects();
  const other = startOther();
  // A batch of which some effects came before the rebalance, and not all.
  const isMidBatch = ({ event, resolved, size }: { event?: string; resolved: number; size: number }) =>
    event === 'rebalance' && resolved >= 1 && resolved < size;
  await consumer.next(isMidBatch, 60_000);
  await other.next(({ event }) => event === 'started', 60_000);
  await until(async () => (await effects()) > before, { what: 'the group goes on', timeoutMs: 60_000 });
  return other;
}
