import { setTimeout as sleep } from 'node:timers/promises';
import { describe, expect, test } from 'vitest';
import type { Message, PublishOutcome } from '../../src/publishers/publisher.ts';
import { webhook } from '../../src/publishers/webhook.ts';
import { Receiver } from '../publishers/webhook-receiver.ts';
import { type RelayScenario, withScenario } from '../support/relay-scenario.ts';
import { ScriptedPublisher } from '../support/scripted-publisher.ts';
import { until } from '../support/wait.ts';

const isBad = ({ body }: { body: Buffer }) => JSON.parse(body.toString()).eventType === 'bad';

/** Receives everything, but breaks the connection over events of the type `bad`. */
async function touchyReceiver(): Promise<Receiver> {
  const receiver = await Receiver.forTest();
  receiver.answer = (request, response) => {
    if (isBad(request)) response.socket?.resetAndDestroy();
    else response.writeHead(204).end();
  };
  return receiver;
}

const others = (count: number) => Array.from({ length: count }, (_, n) => ({ aggregateId: `good${n}` }));

async function failuresOf(scenario: RelayScenario): Promise<{ type: string; error: string }[]> {
  return await scenario.db.query(
    `select e.event_type as type, f.error from postcommit.outbox_failures f join postcommit.outbox_events e using (seq)`,
  );
}

describe('one event whose failure looks like an outage, at default settings', () => {
  test(
    'does not stop its destination: the others arrive, and it fails by itself',
    withScenario(async (scenario) => {
      const receiver = await touchyReceiver();
      const relay = await scenario.relay('r', {
        handlers: {},
        destinations: { billing: webhook({ url: receiver.url(), secret: null }) },
      });
      await scenario.emit([{ aggregateId: 'bad', type: 'bad' }, ...others(50)]);
      await until(() => relay.stats().delivered === 50, { what: 'the others have arrived', timeoutMs: 15_000 });
      await until(() => relay.stats().failed > 0, { what: 'it has failed', timeoutMs: 15_000 });
      const failures = await failuresOf(scenario);
      expect(failures.map(({ type }) => type)).toEqual(failures.map(() => 'bad'));
      expect(failures[0]?.error).toMatch(/broke the connection.*takes other events, so this is not an outage/);
      // From now on it delays no other event.
      const told: string[] = [];
      relay.on('destinationDown', ({ error }) => told.push(error));
      await scenario.emit(others(20));
      await until(() => relay.stats().failed > 2, { what: 'it has failed again', timeoutMs: 15_000 });
      await until(() => relay.stats().delivered === 70, { what: 'they have arrived too' });
      expect(told).toEqual([]);
    }),
  );

  test(
    'becomes a dead letter after its attempts, and what is behind it in its aggregate arrives after that',
    withScenario(async (scenario) => {
      const receiver = await touchyReceiver();
      const relay = await scenario.relay('r', {
        handlers: {},
        retry: { delaysMs: [50, 50] },
        destinations: { billing: webhook({ url: receiver.url(), secret: null }) },
      });
      await scenario.emit([{ aggregateId: 'bad', type: 'bad' }, { aggregateId: 'bad', type: 'behind' }, ...others(20)]);
      let wasDead = false;
      const answer = receiver.answer;
      receiver.answer = async (request, response) => {
        if (JSON.parse(request.body.toString()).eventType === 'behind') wasDead = relay.stats().deadLettered === 1;
        await answer(request, response);
      };
      await until(() => relay.stats().delivered === 21, { what: 'all others have arrived', timeoutMs: 20_000 });
      expect(wasDead).toBe(true);
      const [letter] = await scenario.db.query('select reason, attempts, error from postcommit.outbox_dead_letters');
      expect(letter).toMatchObject({ reason: 'exhausted', attempts: 3 });
      expect(letter.error).toContain('The destination takes other events, so this is not an outage.');
    }),
  );

  test(
    'is found out although many like it are the oldest that wait',
    withScenario(async (scenario) => {
      const events = new ScriptedPublisher({ batchSizeMax: 1, batchesInFlightMax: 10, keyRuns: false });
      const bad: PublishOutcome = { kind: 'unavailable', reason: 'connection reset' };
      events.mood = 'away';
      events.outcomeOf = ({ eventType }) => (eventType === 'bad' ? bad : { kind: 'delivered' });
      const destination = { publisher: events, probeDelayMs: 50, probeDelayMsMax: 100 };
      const relay = await scenario.relay('r', {
        handlers: {},
        pollIntervalMs: 50,
        destinations: { events: destination },
      });
      await scenario.emit(Array.from({ length: 30 }, (_, n) => ({ aggregateId: `bad${n}`, type: 'bad' })));
      await scenario.emit(others(30));
      await until(() => relay.stats().unavailable >= 60, { what: 'all wait' });
      events.mood = 'up';
      await until(() => events.received.length === 30, { what: 'the others have arrived', timeoutMs: 30_000 });
    }),
  );
});

describe('one topic that is down while the others are not, at default settings', () => {
  const topicOf = (type: string) => `topic-${type}`;
  const route = ({ type }: { type: string }) => ({ to: 'events', topic: topicOf(type) });

  /** As brokers do it: a batch takes as long as its slowest message. */
  function slowTopic(events: ScriptedPublisher, topic: string, tookMs: number, outcome: PublishOutcome): Set<number> {
    const sizes = new Set<number>();
    const publish = events.publish.bind(events);
    events.outcomeOf = (message) => (message.topic === topic ? outcome : { kind: 'delivered' });
    events.publish = async (batch: readonly Message[], signal: AbortSignal) => {
      const isOf = ({ topic: other }: Message) => other === topic;
      if (batch.some(isOf)) await sleep(tookMs);
      if (batch.some(isOf) && !batch.every(isOf)) sizes.add(batch.length);
      return await publish(batch, signal);
    };
    return sizes;
  }

  /** Emits one event of the topic that is down and one other, again and again. Returns how long the slowest other took. */
  async function slowestOf(scenario: RelayScenario, events: ScriptedPublisher, rounds: number): Promise<number> {
    const emittedAt = new Map<string, number>();
    let slowest = 0;
    const arrived = () => {
      for (const { eventId } of events.received) {
        const at = emittedAt.get(eventId);
        if (at === undefined) continue;
        slowest = Math.max(slowest, performance.now() - at);
        emittedAt.delete(eventId);
      }
      return emittedAt.size === 0;
    };
    for (let round = 0; round < rounds; round++) {
      const now = performance.now();
      const id = `${now}`;
      const [good] = await scenario.emit([
        { aggregateId: `good-${id}`, type: 'up' },
        { aggregateId: `bad-${id}`, type: 'down' },
      ]);
      emittedAt.set(good as string, now);
      await sleep(25);
      arrived();
    }
    await until(arrived, { what: 'the others have arrived', timeoutMs: 20_000 });
    return slowest;
  }

  test.each([
    // One NATS stream without a quorum, one throttled SQS queue, one RabbitMQ queue without a majority.
    ['unavailable', { batchSizeMax: 64, batchesInFlightMax: 4, keyRuns: false }],
    // A Kafka topic that does not exist.
    ['failed', { batchSizeMax: 1_000, batchesInFlightMax: 2, keyRuns: true }],
  ] as const)('%s: it gets batches of its own, and the others do not wait for it', (kind, capabilities) =>
    withScenario(async (scenario) => {
      const events = new ScriptedPublisher(capabilities);
      const mixed = slowTopic(events, topicOf('down'), 700, { kind, reason: 'no leader' });
      const relay = await scenario.relay('r', { handlers: {}, destinations: { events }, route });
      // It takes some batches, and with `unavailable` some trials, until it is known what is wrong.
      await slowestOf(scenario, events, 20);
      await until(() => relay.stats().failed > 0, { what: 'its events fail by themselves', timeoutMs: 15_000 });
      mixed.clear();
      const told: string[] = [];
      relay.on('destinationDown', ({ error }) => told.push(error));
      expect(await slowestOf(scenario, events, 80)).toBeLessThan(500);
      expect(told).toEqual([]);
      expect([...mixed]).toEqual([]);
      // When the topic is up again, its events arrive.
      events.outcomeOf = () => ({ kind: 'delivered' });
      const [count] = await scenario.db.query('select count(*)::integer as n from postcommit.outbox_events');
      await until(() => relay.stats().delivered === count.n, { what: 'everything has arrived', timeoutMs: 30_000 });
    })(),
  );

  test(
    'events of one aggregate that go to several topics keep their order all the same',
    withScenario(async (scenario) => {
      const events = new ScriptedPublisher({ batchSizeMax: 20, batchesInFlightMax: 2, keyRuns: true });
      slowTopic(events, topicOf('down'), 300, { kind: 'failed', reason: 'no such topic' });
      const relay = await scenario.relay('r', {
        handlers: {},
        retry: { delaysMs: Array.from({ length: 50 }, () => 50) },
        destinations: { events },
        route,
      });
      const sent = await scenario.emit(
        Array.from({ length: 60 }, (_, n) => ({ aggregateId: `a${n % 3}`, type: n % 7 === 3 ? 'down' : 'up' })),
      );
      await until(() => relay.stats().failed > 3, { what: 'the topic is set apart' });
      events.outcomeOf = () => ({ kind: 'delivered' });
      await until(() => relay.stats().delivered === 60, { what: 'all have arrived', timeoutMs: 30_000 });
      const arrived = events.received.map(({ eventId }) => eventId);
      for (const line of [0, 1, 2]) {
        const wanted = sent.filter((_, n) => n % 3 === line);
        expect(arrived.filter((id) => wanted.includes(id))).toEqual(wanted);
      }
    }),
  );
});
