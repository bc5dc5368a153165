import { randomUUID } from 'node:crypto';
import { jetstreamManager } from '@nats-io/jetstream';
import { connect } from '@nats-io/transport-node';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { cloudEvents, createOutbox, envelope, fromPg, type Publisher, type Route, raw } from '../../src/index.ts';
import { nats } from '../../src/publishers/nats.ts';
import { sns } from '../../src/publishers/sns.ts';
import { sqs } from '../../src/publishers/sqs.ts';
import { QueueConsumer, testAccess } from '../publishers/aws-queue.ts';
import { TopicConsumer } from '../publishers/aws-topic.ts';
import { type RelayScenario, type ScenarioRelayOptions, withScenario } from '../support/relay-scenario.ts';
import { fileService } from '../support/services.ts';
import { until } from '../support/wait.ts';

const natsServer = fileService('nats');
const awsServer = fileService('sqs');

let queues: QueueConsumer;
let topics: TopicConsumer;
beforeAll(() => {
  queues = new QueueConsumer(awsServer.url);
  topics = new TopicConsumer(awsServer.url);
});
afterAll(() => {
  queues?.close();
  topics?.close();
});

/** A place that several targets share, and everything that the broker stored there. */
interface Place {
  options: ScenarioRelayOptions;
  /** What tells the targets apart, in order. */
  targets: string[];
  /** Once `count` messages are there. */
  stored(count: number): Promise<Stored[]>;
}

interface Stored {
  target: string;
  eventId: string | undefined;
  deduplicationId: string | undefined;
}

type Wrap = (publisher: Publisher) => Publisher;

const asIs: Wrap = (publisher) => publisher;

/** A stream that stores two subjects, both routes of one destination. */
async function natsPlace(wrap: Wrap): Promise<Place> {
  const shop = `shop-${randomUUID()}`;
  const observer = await connect({ servers: natsServer.url });
  await (await jetstreamManager(observer)).streams.add({ name: shop, subjects: [`${shop}.>`] });
  await observer.close();
  const route = (): Route[] => [
    { to: 'events', topic: `${shop}.orders` },
    { to: 'events', topic: `${shop}.audit` },
  ];
  return {
    options: { destinations: { events: wrap(nats({ servers: natsServer.url })) }, route },
    targets: ['audit', 'orders'],
    async stored(count) {
      const reader = await connect({ servers: natsServer.url });
      try {
        const { streams } = await jetstreamManager(reader);
        await until(async () => (await streams.info(shop)).state.messages >= count, {
          what: `${count} messages are in ${shop}`,
          timeoutMs: 10_000,
        });
        const { messages } = (await streams.info(shop)).state;
        const found = Array.from({ length: messages }, (_, n) => streams.getMessage(shop, { seq: n + 1 }));
        return (await Promise.all(found)).map((message) => ({
          target: message?.subject.slice(shop.length + 1) ?? '',
          eventId: message?.header.get('event-id'),
          deduplicationId: message?.header.get('Nats-Msg-Id'),
        }));
      } finally {
        await reader.close();
      }
    },
  };
}

/** Two destinations that write to one queue or topic, with a serializer each. */
function awsPlace(publisher: () => Publisher, read: (count: number) => ReturnType<QueueConsumer['read']>): Place {
  const destinations = {
    plain: { publisher: publisher(), serializer: raw() },
    wrapped: { publisher: publisher(), serializer: envelope() },
  };
  return {
    options: { destinations },
    targets: ['plain', 'wrapped'],
    async stored(count) {
      return (await read(count)).map(({ body, eventId, deduplicationId }) => {
        return { target: 'eventType' in JSON.parse(body) ? 'wrapped' : 'plain', eventId, deduplicationId };
      });
    },
  };
}

const places: Record<string, (wrap: Wrap) => Promise<Place>> = {
  'a NATS stream with two subjects': natsPlace,
  'an SQS FIFO queue of two destinations': async (wrap) => {
    const queueUrl = await queues.createQueue('fifo');
    const publisher = () => wrap(sqs({ ...testAccess, endpoint: awsServer.url, queueUrl }));
    return awsPlace(publisher, (count) => queues.read(queueUrl, count));
  },
  'an SNS FIFO topic of two destinations': async (wrap) => {
    const topicArn = await topics.createTopic('fifo');
    const publisher = () => wrap(sns({ ...testAccess, endpoint: awsServer.url, topicArn }));
    return awsPlace(publisher, (count) => topics.read(topicArn, count));
  },
};

async function areAll(scenario: RelayScenario, status: string): Promise<boolean> {
  const found = await scenario.db.query('select distinct status from postcommit.outbox_status');
  return found.length === 1 && found[0]?.status === status;
}

async function untilAll(scenario: RelayScenario, status: string): Promise<void> {
  await until(() => areAll(scenario, status), { what: `every event is ${status}`, timeoutMs: 20_000 });
}

/** The broker stores what it is sent, and its first answers are lost: one for each message. */
function losingFirstAnswers(kind: 'failed' | 'unavailable'): Wrap {
  return (publisher) => {
    const answered = new Set<string>();
    return {
      kind: publisher.kind,
      capabilities: publisher.capabilities,
      connect: (signal) => publisher.connect(signal),
      health: (signal) => publisher.health(signal),
      close: () => publisher.close(),
      async publish(batch, signal) {
        const outcomes = await publisher.publish(batch, signal);
        return outcomes.map((outcome, index) => {
          const { deduplicationId = '' } = batch[index] ?? {};
          if (answered.has(deduplicationId)) return outcome;
          answered.add(deduplicationId);
          return { kind, reason: 'the answer was lost' };
        });
      },
    };
  };
}

/** The destinations of a place, without a long pause after an outage. */
function probedSoon({ options }: Place): NonNullable<ScenarioRelayOptions['destinations']> {
  const destinations = Object.entries(options.destinations ?? {}).map(([name, given]) => {
    const settings = 'publisher' in given ? given : { publisher: given };
    return [name, { ...settings, probeDelayMs: 20 }];
  });
  return Object.fromEntries(destinations);
}

describe.each(Object.entries(places))('%s', (_, placeOf) => {
  const event = { aggregateId: '1', payload: { total: 3 } };
  const quick = { handlers: {}, pollIntervalMs: 50, retry: { delaysMs: [20, 20] } };

  test(
    'stores an event once for each target, and each copy tells the event id',
    withScenario(async (scenario) => {
      const place = await placeOf(asIs);
      const relay = scenario.idleRelay('r', { ...quick, ...place.options });
      const [id] = await scenario.emit([event]);
      expect(await relay.runOnce()).toEqual({ delivered: 1, failed: 0, deadLettered: 0, complete: true });
      const stored = await place.stored(2);
      expect(stored.map(({ target }) => target).sort()).toEqual(place.targets);
      for (const { eventId, deduplicationId } of stored) {
        expect(eventId).toBe(id);
        expect(deduplicationId).toMatch(new RegExp(`^${id}\\.[0-9a-f]{16}$`));
      }
    }),
  );

  test.each(['failed', 'unavailable'] as const)(
    'stores an event once for each target when its answers are lost: %s',
    (kind) =>
      withScenario(async (scenario) => {
        const place = await placeOf(losingFirstAnswers(kind));
        await scenario.emit([event]);
        await scenario.relay('r', { ...quick, ...place.options, destinations: probedSoon(place) });
        await untilAll(scenario, 'SENT');
        // It comes behind second copies, if there are any.
        await scenario.emit([event]);
        await untilAll(scenario, 'SENT');
        const stored = await place.stored(4);
        expect(stored.map(({ target }) => target).sort()).toEqual([...place.targets, ...place.targets].sort());
      })(),
  );

  test.each(['failed', 'unavailable'] as const)(
    'stores an event again when it is replayed within the window, once for each target although answers are lost: %s',
    (kind) =>
      withScenario(async (scenario) => {
        const place = await placeOf(losingFirstAnswers(kind));
        const { admin } = createOutbox({ db: fromPg(scenario.db.pool) });
        const [id = ''] = await scenario.emit([event]);
        await scenario.relay('r', { ...quick, ...place.options, destinations: probedSoon(place) });
        await untilAll(scenario, 'SENT');
        for (const copies of [4, 6]) {
          expect(await admin.replay({ ids: [id] })).toEqual({ count: 1 });
          await untilAll(scenario, 'SENT');
          const stored = await place.stored(copies);
          expect(stored).toHaveLength(copies);
          expect(new Set(stored.map(({ deduplicationId }) => deduplicationId)).size).toBe(copies);
          expect(new Set(stored.map(({ eventId }) => eventId))).toEqual(new Set([id]));
        }
      })(),
  );

  test(
    'stores a dead letter once when it is retried after its answer was lost, and again when it is replayed then',
    withScenario(async (scenario) => {
      const place = await placeOf(losingFirstAnswers('failed'));
      const { admin } = createOutbox({ db: fromPg(scenario.db.pool) });
      const [id = ''] = await scenario.emit([event]);
      await scenario.relay('r', { ...quick, ...place.options, retry: { delaysMs: [] } });
      for (const copies of [2, 4]) {
        await untilAll(scenario, 'FAILED');
        // Of two subjects with one key the second is not tried before the first is stored: it fails by itself.
        const sentAfterRetry = async () => (await admin.retry({ ids: [id] })).count === 0 && areAll(scenario, 'SENT');
        await until(sentAfterRetry, { what: 'the dead letter is SENT', timeoutMs: 20_000 });
        expect(await place.stored(copies)).toHaveLength(copies);
        expect(await admin.replay({ ids: [id] })).toEqual({ count: 1 });
      }
    }),
  );
});

test(
  'a NATS consumer finds the event id also in a format that has no header for it',
  withScenario(async (scenario) => {
    const place = await natsPlace(asIs);
    const publisher = nats({ servers: natsServer.url });
    const events = { publisher, serializer: cloudEvents({ source: '/orders' }) };
    const relay = scenario.idleRelay('r', { handlers: {}, ...place.options, destinations: { events } });
    const [id] = await scenario.emit([{ aggregateId: '1', payload: {} }]);
    await relay.runOnce();
    expect((await place.stored(2)).map(({ eventId }) => eventId)).toEqual([id, id]);
  }),
);
