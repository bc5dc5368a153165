import { randomUUID } from 'node:crypto';
import { connect as connectTcp } from 'node:net';
import { createServer } from 'node:tls';
import { type Channel, type ChannelModel, connect } from 'amqplib';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import type { Message, Publisher } from '../../src/publishers/publisher.ts';
import { type RabbitmqOptions, rabbitmq } from '../../src/publishers/rabbitmq.ts';
import { testMessage } from '../../src/testing/index.ts';
import { fileService } from '../support/services.ts';
import { deliverThroughCrash } from './crash-of-server.ts';
import { testCertificate, testCertificateKey } from './webhook-certificate.ts';

const brokerBytesMax = 200_000;
const server = fileService('rabbitmq', { settings: { max_message_size: String(brokerBytesMax) } });
const soon = () => AbortSignal.timeout(10_000);

let observer: ChannelModel;
let admin: Channel;
let queue: string;
let publishers: Publisher[] = [];

async function observe(): Promise<void> {
  observer = await connect(server.url);
  observer.on('error', () => {});
  admin = await observer.createChannel();
  admin.on('error', () => {});
}

async function connected(options: Partial<RabbitmqOptions> = {}): Promise<Publisher> {
  const publisher = rabbitmq({ url: server.url, ...options });
  publishers.push(publisher);
  await publisher.connect(soon());
  return publisher;
}

async function idsIn(name: string): Promise<string[]> {
  const ids: string[] = [];
  for (let got = await admin.get(name, { noAck: true }); got; got = await admin.get(name, { noAck: true })) {
    ids.push(got.properties.messageId);
  }
  return ids;
}

const message = (given: Partial<Message> = {}) => testMessage({ topic: queue, ...given });
const idsOf = (messages: readonly Message[]) => messages.map(({ eventId }) => eventId);

describe('the RabbitMQ publisher', () => {
  beforeAll(observe);
  afterAll(() => observer.close());
  beforeEach(async () => {
    queue = `orders-${randomUUID()}`;
    await admin.assertQueue(queue, { durable: true });
  });
  afterEach(async () => {
    await Promise.all(publishers.map((publisher) => publisher.close()));
    publishers = [];
  });

  it('sets what AMQP has fields for', async () => {
    const publisher = await connected();
    const sent = message({ eventType: 'order.paid', occurredAtMs: 1_700_000_000_999, headers: { tenant: 'a' } });
    expect(await publisher.publish([sent], soon())).toEqual([{ kind: 'delivered' }]);
    const got = await admin.get(queue, { noAck: true });
    expect(got ? got.properties : undefined).toMatchObject({
      messageId: sent.eventId,
      type: 'order.paid',
      timestamp: 1_700_000_000,
      deliveryMode: 2,
      contentType: 'application/json',
      headers: { tenant: 'a' },
    });
  });

  it('publishes to the exchange of the route, else to that of the options', async () => {
    const [first, second] = [`first-${queue}`, `second-${queue}`];
    for (const exchange of [first, second]) await admin.assertExchange(exchange, 'topic', { durable: true });
    await admin.bindQueue(queue, first, 'from.option');
    await admin.bindQueue(queue, second, 'from.route');
    const publisher = await connected({ exchange: first });
    const batch = [message({ topic: 'from.option' }), message({ topic: 'from.route', exchange: second })];
    expect(await publisher.publish(batch, soon())).toEqual([{ kind: 'delivered' }, { kind: 'delivered' }]);
    expect((await idsIn(queue)).sort()).toEqual(idsOf(batch).sort());
  });

  it('answers an unroutable message with retry, naming exchange and routing key, and only that one', async () => {
    const publisher = await connected();
    const lost = message({ topic: 'no-such-queue' });
    const unbound = message({ topic: 'nobody.listens', exchange: 'amq.topic' });
    const good = [message(), message()];
    const batch = [good[0] as Message, lost, lost, unbound, good[1] as Message];
    const outcomes = await publisher.publish(batch, soon());
    expect(outcomes.map(({ kind }) => kind)).toEqual(['delivered', 'failed', 'failed', 'failed', 'delivered']);
    expect(outcomes[1]).toMatchObject({
      reason: expect.stringMatching(/exchange '', routing key 'no-such-queue'.*312/),
    });
    expect(outcomes[3]).toMatchObject({ reason: expect.stringMatching(/'amq\.topic', routing key 'nobody\.listens'/) });
    expect((await idsIn(queue)).sort()).toEqual(idsOf(good).sort());
  });

  it('takes an unroutable message for delivered where mandatory is off, as RabbitMQ does', async () => {
    const publisher = await connected({ mandatory: false });
    expect(await publisher.publish([message({ topic: 'no-such-queue' })], soon())).toEqual([{ kind: 'delivered' }]);
  });

  it('fails only the messages of an exchange that is missing, and continues when it is there', async () => {
    const publisher = await connected();
    const exchange = `late-${queue}`;
    const good = Array.from({ length: 100 }, () => message());
    const missing = Array.from({ length: 20 }, () => message({ exchange, topic: 'x' }));
    const batch = good.flatMap((each, n) => (n % 5 === 0 ? [each, missing[n / 5] as Message] : [each]));
    const outcomes = await publisher.publish(batch, soon());
    for (const [index, { exchange: named }] of batch.entries()) {
      if (named === undefined) expect(outcomes[index]).toEqual({ kind: 'delivered' });
      else expect(outcomes[index]).toMatchObject({ kind: 'failed', reason: expect.stringMatching(/NOT_FOUND.*late-/) });
    }
    // Each once: the good ones have a channel of their own.
    expect((await idsIn(queue)).sort()).toEqual(idsOf(good).sort());

    await admin.assertExchange(exchange, 'fanout', { durable: true });
    await admin.bindQueue(queue, exchange, '');
    expect((await publisher.publish(missing, soon())).every(({ kind }) => kind === 'delivered')).toBe(true);
  });

  it('answers with retry where it may not publish, and leaves the others alone', async () => {
    const publisher = await connected();
    const exchange = `internal-${queue}`;
    await admin.assertExchange(exchange, 'fanout', { internal: true });
    const outcomes = await publisher.publish([message({ exchange }), message()], soon());
    expect(outcomes[0]).toMatchObject({ kind: 'failed', reason: expect.stringContaining('ACCESS_REFUSED') });
    expect(outcomes[1]).toEqual({ kind: 'delivered' });
  });

  it('answers with retry what a full queue does not take', async () => {
    const publisher = await connected();
    const full = `full-${queue}`;
    await admin.assertQueue(full, { arguments: { 'x-max-length': 1, 'x-overflow': 'reject-publish' } });
    const outcomes = [];
    for (let n = 0; n < 3; n++) outcomes.push(...(await publisher.publish([message({ topic: full })], soon())));
    expect(outcomes[0]).toEqual({ kind: 'delivered' });
    expect(outcomes[2]).toMatchObject({ kind: 'failed', reason: expect.stringContaining('nack') });
    expect(await idsIn(full)).toHaveLength(1);
  });

  it('finds the one that RabbitMQ closes the channel over, and delivers the rest', async () => {
    const publisher = await connected();
    const tooLarge = message({ body: 'x'.repeat(brokerBytesMax + 1) });
    const good = Array.from({ length: 40 }, () => message());
    const batch = [...good.slice(0, 20), tooLarge, ...good.slice(20)];
    const outcomes = await publisher.publish(batch, soon());
    expect(outcomes[20]).toMatchObject({ kind: 'rejected', reason: expect.stringContaining('message size') });
    expect(outcomes.filter(({ kind }) => kind === 'delivered')).toHaveLength(40);
    expect(new Set(await idsIn(queue))).toEqual(new Set(idsOf(good)));
  });

  it('rejects what AMQP cannot carry, alone and unsent', async () => {
    const publisher = await connected({ messageBytesMax: 1_000 });
    const headers = (value: unknown) => message({ headers: { x: value } as Record<string, string> });
    const bad: [Message, RegExp][] = [
      [message({ body: 'x'.repeat(1_001) }), /messageBytesMax/],
      [message({ topic: 'ü'.repeat(128) }), /routing key/],
      [message({ exchange: 'x'.repeat(256) }), /exchange/],
      [message({ headers: { CC: 'elsewhere' } }), /CC/],
      [message({ headers: { ['x'.repeat(256)]: '' } }), /header name/],
      [message({ headers: { big: 'x'.repeat(70_000) } }), /AMQP cannot carry/],
      [{ ...message(), body: 7 as unknown as string }, /body/],
      [message({ contentType: undefined as unknown as string }), /content type/],
      [headers({ deep: true }), /header x is not a string/],
      [headers(null), /header x is not a string/],
    ];
    const batch = bad.flatMap(([each]) => [each, message()]);
    const outcomes = await publisher.publish(batch, soon());
    for (const [index, [, reason]] of bad.entries()) {
      expect(outcomes[2 * index]).toEqual({ kind: 'rejected', reason: expect.stringMatching(reason) });
      expect(outcomes[2 * index + 1]).toEqual({ kind: 'delivered' });
    }
    expect(await publisher.publish([headers(7)], soon())).toEqual([{ kind: 'delivered' }]);
  });

  it('loses nothing that it called delivered when RabbitMQ crashes in the middle, and continues afterwards', async () => {
    const publisher = await connected();
    const idOf = ({ eventId }: Message) => eventId;
    const delivered = await deliverThroughCrash({ publisher, message, idOf, server: server.own, observe });
    const kept = new Set(await idsIn(queue));
    expect(delivered.filter((id) => !kept.has(id))).toEqual([]);
  }, 60_000);

  it('says which exchange is gone after a restart', async () => {
    const exchange = `transient-${queue}`;
    await admin.assertExchange(exchange, 'fanout', { durable: false });
    await admin.bindQueue(queue, exchange, '');
    const publisher = await connected({ exchange });
    const batch = Array.from({ length: 30 }, () => message());
    expect((await publisher.publish(batch, soon())).every(({ kind }) => kind === 'delivered')).toBe(true);
    await server.own.restart();
    await observe();
    const outcomes = await publisher.publish(batch, soon());
    for (const outcome of outcomes) {
      expect(outcome).toMatchObject({ kind: 'failed', reason: expect.stringMatching(/no exchange 'transient-/) });
    }
  }, 60_000);
});

describe('the RabbitMQ publisher is refused', () => {
  const refusal = { code: 'POSTCOMMIT_E_DESTINATION_REFUSED' };
  const connecting = (options: Partial<RabbitmqOptions>) => rabbitmq({ url: server.url, ...options }).connect(soon());

  it('with a wrong password', async () => {
    const url = server.url.replace('guest:guest', 'guest:wrong');
    await expect(connecting({ url })).rejects.toMatchObject({ ...refusal, message: expect.stringContaining('ACCESS') });
    const { port } = server.own;
    const address = { hostname: '127.0.0.1', port, username: 'nobody', password: 'x' };
    await expect(connecting({ url: address })).rejects.toMatchObject(refusal);
  });

  it('with a virtual host that does not exist', async () => {
    const refused = { ...refusal, message: expect.stringContaining('virtual host') };
    await expect(connecting({ url: `${server.url}/nowhere` })).rejects.toMatchObject(refused);
  });

  it('by itself where the certificate is not trusted, and connects where it is', async () => {
    const front = createServer({ cert: testCertificate, key: testCertificateKey }, (socket) => {
      const upstream = connectTcp(server.own.port, '127.0.0.1');
      for (const side of [socket, upstream]) side.on('error', () => {});
      socket.pipe(upstream).pipe(socket);
    });
    await new Promise<void>((ready) => front.listen(0, '127.0.0.1', ready));
    try {
      const { port } = front.address() as { port: number };
      const url = `amqps://guest:guest@localhost:${port}`;
      await expect(connecting({ url })).rejects.toMatchObject(refusal);
      const publisher = rabbitmq({ url, tls: { ca: testCertificate } });
      await publisher.connect(soon());
      await publisher.health(soon());
      await publisher.close();
    } finally {
      front.close();
    }
  });
});

describe('rabbitmq()', () => {
  it('refuses options that cannot be meant', () => {
    const url = 'amqp://localhost';
    const bad: [unknown, RegExp][] = [
      [undefined, /object of options/],
      [{}, /url/],
      [{ url: 'http://localhost' }, /amqp:\/\//],
      [{ url: 'not a url' }, /amqp:\/\//],
      [{ url: { protocol: 'http' } }, /url.protocol/],
      [{ url, inFlight: 3 }, /There is no option inFlight/],
      [{ url, inFlightMax: 0 }, /inFlightMax/],
      [{ url, mandatory: 'yes' }, /mandatory/],
      [{ url, exchange: 'x'.repeat(256) }, /exchange/],
    ];
    for (const [options, text] of bad) {
      expect(() => rabbitmq(options as RabbitmqOptions)).toThrow(
        expect.objectContaining({ code: 'POSTCOMMIT_E_BAD_OPTION', message: expect.stringMatching(text) }),
      );
    }
  });
});
