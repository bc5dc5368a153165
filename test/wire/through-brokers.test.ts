import { randomUUID } from 'node:crypto';
import { readFile } from 'node:fs/promises';
import { Ajv2020 } from 'ajv/dist/2020.js';
import { connect } from 'amqplib';
import { describe, expect, test } from 'vitest';
import { cloudEvents, envelope, type Publisher, raw } from '../../src/index.ts';
import { kafka } from '../../src/publishers/kafka.ts';
import { rabbitmq } from '../../src/publishers/rabbitmq.ts';
import { webhook } from '../../src/publishers/webhook.ts';
import { kafkaReader } from '../publishers/kafka-reader.ts';
import { Receiver } from '../publishers/webhook-receiver.ts';
import { type RelayScenario, withScenario } from '../support/relay-scenario.ts';
import { fileService } from '../support/services.ts';
import { until } from '../support/wait.ts';

const kafkaServer = fileService('kafka');
const rabbitServer = fileService('rabbitmq');

const schema = JSON.parse(
  await readFile(new URL('../../docs/wire-format/envelope.schema.json', import.meta.url), 'utf8'),
);
const isEnvelope = new Ajv2020({ strict: true }).compile(schema);

const traceId = '4bf92f3577b34da6a3ce929d0e0e4736';
const traceparent = `00-${traceId}-00f067aa0ba902b7-01`;
/** Beyond 2^53: a client that made a number of it would change it. */
const seq = '9007199254740993';
const sequence = `000${seq}`;
const payload = { total: 9, text: 'Größe 😀 "quoted"', nested: [1, null, true] };

/** What a consumer of the broker sees. */
interface Seen {
  body: string;
  contentType: string | undefined;
  headers: Record<string, string>;
}

const formats = {
  envelope: envelope(),
  raw: raw(),
  structured: cloudEvents({ source: '/orders' }),
  binary: cloudEvents({ source: '/orders', mode: 'binary' }),
};
type Format = keyof typeof formats;

/** One event, sent in every format at once; answers its id. */
async function send(
  scenario: RelayScenario,
  publisher: () => Publisher,
  topicOf: (format: Format) => string,
): Promise<string> {
  const destinations = Object.fromEntries(
    Object.entries(formats).map(([format, serializer]) => [format, { publisher: publisher(), serializer }]),
  );
  const relay = scenario.idleRelay('r', {
    handlers: {},
    destinations,
    route: () => Object.keys(formats).map((format) => ({ to: format, topic: topicOf(format as Format) })),
  });
  await scenario.db.query(`select setval('postcommit.outbox_events_seq_seq', ${seq}, false)`);
  const [id = ''] = await scenario.emit([
    { type: 'order.created', aggregateId: 'ord-42', payload, headers: { traceparent, tenant: 'acme' } },
  ]);
  await relay.runOnce();
  expect(await scenario.db.query('select target, error from postcommit.outbox_failures')).toEqual([]);
  expect(relay.stats().delivered).toBe(1);
  return id;
}

/** The same facts in each format, whichever the broker. */
function check(id: string, seen: Record<Format, Seen>, prefix: string): void {
  const facts = {
    'event-id': id,
    'event-type': 'order.created',
    'schema-version': '1',
    'aggregate-type': 'thing',
    'aggregate-id': 'ord-42',
    'event-seq': seq,
    'trace-id': traceId,
    tenant: 'acme',
    traceparent,
  };
  const body = JSON.parse(seen.envelope.body);
  expect(isEnvelope(body), JSON.stringify(isEnvelope.errors)).toBe(true);
  expect(body).toMatchObject({ eventId: id, eventType: 'order.created', eventSeq: seq, traceId, data: payload });
  expect(body.aggregate).toEqual({ type: 'thing', id: 'ord-42' });
  expect(seen.envelope.contentType).toMatch(/^application\/json/);
  expect(seen.envelope.headers).toMatchObject(facts);

  expect(JSON.parse(seen.raw.body)).toEqual(payload);
  expect(seen.raw.headers).toMatchObject(facts);

  expect(seen.structured.contentType).toMatch(/^application\/cloudevents\+json/);
  const event = JSON.parse(seen.structured.body);
  expect(event).toMatchObject({ specversion: '1.0', id, source: '/orders', type: 'order.created', data: payload });
  expect(event.sequence).toBe(sequence);

  expect(JSON.parse(seen.binary.body)).toEqual(payload);
  expect(seen.binary.contentType).toMatch(/^application\/json/);
  expect(seen.binary.headers).toMatchObject({
    [`${prefix}specversion`]: '1.0',
    [`${prefix}id`]: id,
    [`${prefix}source`]: '/orders',
    [`${prefix}type`]: 'order.created',
    [`${prefix}subject`]: 'ord-42',
    [`${prefix}sequence`]: sequence,
  });
}

describe('every wire format, as a consumer of the real broker sees it', () => {
  test(
    'Kafka',
    withScenario(async (scenario) => {
      const reader = kafkaReader(() => kafkaServer.url);
      const topics = {} as Record<Format, string>;
      for (const format of Object.keys(formats) as Format[]) topics[format] = await reader.createTopic();
      const id = await send(
        scenario,
        () => kafka({ brokers: [kafkaServer.url] }),
        (format) => topics[format],
      );
      const seen = {} as Record<Format, Seen>;
      for (const format of Object.keys(formats) as Format[]) {
        const [message] = await reader.read(topics[format], 1);
        if (message) seen[format] = message;
      }
      check(id, seen, 'ce_');
    }),
    120_000,
  );

  test(
    'RabbitMQ',
    withScenario(async (scenario) => {
      const connection = await connect(rabbitServer.url);
      try {
        const channel = await connection.createChannel();
        const queueOf = (format: Format) => `${format}-${run}`;
        const run = randomUUID();
        for (const format of Object.keys(formats) as Format[]) await channel.assertQueue(queueOf(format));
        const id = await send(scenario, () => rabbitmq({ url: rabbitServer.url }), queueOf);
        const seen = {} as Record<Format, Seen>;
        for (const format of Object.keys(formats) as Format[]) {
          const message = await until(() => channel.get(queueOf(format), { noAck: true }), { what: 'it has arrived' });
          const { headers = {}, contentType } = message.properties;
          seen[format] = { body: message.content.toString(), contentType, headers };
        }
        check(id, seen, 'cloudEvents_');
      } finally {
        await connection.close();
      }
    }),
    120_000,
  );

  test(
    'webhooks',
    withScenario(async (scenario) => {
      const receiver = await Receiver.forTest();
      const url = (format: Format) => receiver.url(`/${format}`);
      const id = await send(scenario, () => webhook({ secret: null, allowPrivateAddresses: true }), url);
      const seen = {} as Record<Format, Seen>;
      for (const { path, headers, body } of receiver.requests) {
        seen[path.slice(1) as Format] = {
          body: body.toString(),
          contentType: headers['content-type'],
          headers: headers as Record<string, string>,
        };
      }
      check(id, seen, 'ce-');
    }),
  );
});
