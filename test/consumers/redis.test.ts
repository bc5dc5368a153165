import { randomUUID } from 'node:crypto';
import { createClient, type RedisClientType } from 'redis';
import { afterAll, beforeAll, describe, expect, onTestFinished, test } from 'vitest';
import type { ReceivedEvent } from '../../src/index.ts';
import { consumeRedis, type RedisConsumerOptions } from '../../src/publishers/redis.ts';
import { fileService } from '../support/services.ts';
import { startTcpProxy, type TcpProxy } from '../support/tcp-proxy.ts';
import { deferred, nextEvent, until, within } from '../support/wait.ts';
import { type ConsumerScene, envelopeOf, silent, type TestMessage, testConsumer } from './consumer-suite.ts';

const server = fileService('redis');
let admin: RedisClientType;
beforeAll(async () => {
  admin = createClient({ url: server.url }) as RedisClientType;
  admin.on('error', () => {});
  await admin.connect();
});
afterAll(() => admin?.destroy());

async function startProxy(): Promise<TcpProxy> {
  const { hostname, port } = new URL(server.url);
  const proxy = await startTcpProxy({ host: hostname, port: Number(port) });
  onTestFinished(() => proxy.close());
  return proxy;
}

/** As the publisher writes them. */
async function publishTo(stream: string, messages: readonly TestMessage[]): Promise<string[]> {
  const ids: string[] = [];
  for (const { body, headers, contentType, key } of messages) {
    const fields = ['content-type', contentType ?? '', ...(key === null ? [] : ['key', key])];
    for (const [name, value] of Object.entries(headers)) fields.push(`header:${name}`, value);
    ids.push(String(await admin.sendCommand(['XADD', stream, '*', ...fields, 'body', String(body)])));
  }
  return ids;
}

async function lettersIn(stream: string, count: number): Promise<{ [field: string]: string }[]> {
  await until(async () => (await admin.xLen(stream)) >= count, { what: `${count} dead letters` });
  return ((await admin.xRange(stream, '-', '+')) ?? []).map(({ message }) => ({ ...message }));
}

async function createScene(): Promise<ConsumerScene> {
  const stream = `orders-${randomUUID()}`;
  const proxy = await startProxy();
  const client = createClient({ url: proxy.url(server.url) });
  return {
    consumer: (options) => consumeRedis({ ...options, client, stream, group: 'billing' }),
    publish: async (messages) => void (await publishTo(stream, messages)),
    async deadLetters(count) {
      const letters = await lettersIn(`${stream}:dead`, count);
      return letters.map((fields) => ({ body: fields.body ?? '', reason: fields['dead-letter-reason'] }));
    },
    async cutConnections() {
      proxy.cut();
    },
  };
}

testConsumer('Redis Streams', createScene, { cutsConnections: true });

describe('the consumer of Redis Streams', () => {
  const numberOf = (event: ReceivedEvent) => (event.payload as { n: number }).n;
  const envelopes = (from: number, to: number) =>
    Array.from({ length: to - from }, (_, index) => envelopeOf('a', from + index));

  /** A member of the group `billing`, with the numbers of the events that it was called for. */
  function member(stream: string, more: Partial<RedisConsumerOptions<unknown>> = {}, url = server.url) {
    const calls: number[] = [];
    const consumer = consumeRedis({
      client: createClient({ url }),
      stream,
      group: 'billing',
      logger: silent,
      stopTimeoutMs: 0,
      ...more,
      async handle(event: ReceivedEvent, context: never) {
        calls.push(numberOf(event));
        await more.handle?.(event as never, context);
      },
    } as RedisConsumerOptions<unknown>);
    onTestFinished(() => consumer.stop());
    return { consumer, calls };
  }

  const pendingIn = async (stream: string) => (await admin.xPending(stream, 'billing')).pending;
  const namesIn = async (stream: string) => (await admin.xInfoConsumers(stream, 'billing')).map(({ name }) => name);
  const streamName = () => `orders-${randomUUID()}`;

  test('claims the entries of a member that is killed, in order', async () => {
    const stream = streamName();
    const proxy = await startProxy();
    const started = deferred();
    const handle = async () => {
      started.resolve();
      await new Promise(() => {});
    };
    const killed = member(stream, { handle, claimIdleMs: 400 }, proxy.url(server.url));
    await killed.consumer.start();
    await publishTo(stream, envelopes(0, 5));
    await within(started.promise, { what: 'the first one is in work' });
    await until(async () => (await pendingIn(stream)) === 5, { what: 'it has all entries' });
    const second = member(stream, { claimIdleMs: 400 });
    await second.consumer.start();
    // What it processes while the other one lives is new.
    await publishTo(stream, [envelopeOf('b', 9)]);
    await until(() => second.calls.length === 1 || killed.calls.length === 2, { what: 'the new one is received' });
    await proxy.close();
    await until(() => second.calls.filter((n) => n < 5).length === 5, { what: 'all are claimed', timeoutMs: 20_000 });
    expect(second.calls.filter((n) => n < 5)).toEqual([0, 1, 2, 3, 4]);
    await until(async () => (await pendingIn(stream)) === 0, { what: 'all are acknowledged', timeoutMs: 20_000 });
  });

  test('a member with another name after a crash processes what the crashed one had before newer entries', async () => {
    const stream = streamName();
    await admin.xGroupCreate(stream, 'billing', '0', { MKSTREAM: true });
    await publishTo(stream, envelopes(0, 3));
    await admin.xReadGroup('billing', 'crashed', { key: stream, id: '>' });
    await publishTo(stream, envelopes(3, 5));
    const { consumer, calls } = member(stream, { claimIdleMs: 1_000 });
    await consumer.start();
    await until(() => calls.length >= 5, { what: 'all are processed' });
    expect(calls).toEqual([0, 1, 2, 3, 4]);
  });

  test('a member that starts beside another one, which works on, reads new entries after claimIdleMs', async () => {
    const stream = streamName();
    const [started, finish] = [deferred(), deferred()];
    const handle = async () => {
      started.resolve();
      await finish.promise;
    };
    const first = member(stream, { handle, claimIdleMs: 450, prefetchMax: 1, stopTimeoutMs: 5_000 });
    await first.consumer.start();
    await publishTo(stream, envelopes(0, 1));
    await within(started.promise, { what: 'the first one is in work' });
    const second = member(stream, { claimIdleMs: 450 });
    await second.consumer.start();
    await publishTo(stream, [envelopeOf('b', 1)]);
    await until(() => second.calls.length === 1, { what: 'it reads new entries' });
    expect([first.calls, second.calls]).toEqual([[0], [1]]);
    finish.resolve();
  });

  test('keeps entries that are in work longer than claimIdleMs from being claimed', async () => {
    const stream = streamName();
    const handle = () => new Promise((resolve) => setTimeout(resolve, 1_500));
    const members = [member(stream, { handle, claimIdleMs: 450 }), member(stream, { handle, claimIdleMs: 450 })];
    for (const { consumer } of members) await consumer.start();
    await publishTo(stream, [envelopeOf('a', 0)]);
    const processed = () => members.reduce((sum, { consumer }) => sum + consumer.stats().processed, 0);
    await until(() => processed() > 0, { what: 'it is processed' });
    await until(async () => (await pendingIn(stream)) === 0, { what: 'it is acknowledged' });
    expect(members.flatMap(({ calls }) => calls)).toEqual([0]);
  });

  test('adds what fails for good to the dead-letter stream, with its fields as they were and the reason', async () => {
    const [stream, dead] = [streamName(), streamName()];
    const { consumer } = member(stream, {
      deadLetterStream: dead,
      retry: { delaysMs: [1, 1] },
      handle() {
        throw new Error('out of paper');
      },
    });
    await consumer.start();
    const message = envelopeOf('a', 0);
    const [id] = await publishTo(stream, [message]);
    const bytes = Buffer.from([0xff, 0x00, 0xfe]);
    const broken = String(await admin.sendCommand(['XADD', stream, '*', 'body', bytes]));
    const letters = await lettersIn(dead, 2);
    expect(letters.find((fields) => fields['dead-letter-entry'] === id)).toEqual({
      'content-type': 'application/json',
      key: 'a',
      'header:event-id': message.headers['event-id'],
      'header:event-type': 'order.created',
      'header:event-key': 'a',
      body: message.body,
      'dead-letter-reason': expect.stringContaining('out of paper'),
      'dead-letter-attempts': '3',
      'dead-letter-at': expect.stringMatching(/^\d{4}-.*Z$/),
      'dead-letter-stream': stream,
      'dead-letter-entry': id,
    });
    expect(letters.find((fields) => fields['dead-letter-entry'] === broken)).toMatchObject({
      'dead-letter-reason': expect.stringContaining('POSTCOMMIT_E_BAD_MESSAGE'),
      'dead-letter-attempts': '0',
    });
    const asBytes = admin.withTypeMapping({ 36: Buffer });
    const raw = ((await asBytes.xRange(dead, '-', '+')) ?? []).map((entry) => Buffer.from(entry.message.body as never));
    expect(raw.some((body) => body.equals(bytes))).toBe(true);
    await until(async () => (await pendingIn(stream)) === 0, { what: 'both are acknowledged' });
  });

  test('reads what was lost with its connection before newer entries', async () => {
    const stream = streamName();
    const proxy = await startProxy();
    const { consumer, calls } = member(stream, {}, proxy.url(server.url));
    await consumer.start();
    await publishTo(stream, envelopes(0, 1));
    await until(async () => calls.length === 1 && (await pendingIn(stream)) === 0, { what: 'the first one is done' });
    await until(() => isReading(stream), { what: 'it waits for entries' });
    proxy.stall();
    await publishTo(stream, envelopes(1, 2));
    await until(async () => (await pendingIn(stream)) === 1, { what: 'Redis has delivered into the void' });
    proxy.cut();
    await publishTo(stream, envelopes(2, 5));
    proxy.resume();
    await until(() => calls.length >= 5, { what: 'all are processed', timeoutMs: 20_000 });
    expect(calls).toEqual([0, 1, 2, 3, 4]);
    await until(async () => (await pendingIn(stream)) === 0, { what: 'all are acknowledged' });
  });

  test('acknowledges after an outage what it has processed meanwhile', async () => {
    const stream = streamName();
    const proxy = await startProxy();
    const [started, finish] = [deferred(), deferred()];
    const handle = async () => {
      started.resolve();
      await finish.promise;
    };
    const { consumer, calls } = member(stream, { handle }, proxy.url(server.url));
    await consumer.start();
    await publishTo(stream, envelopes(0, 3));
    await within(started.promise, { what: 'the first one is in work' });
    const received = () => consumer.stats().inFlight + consumer.stats().waiting;
    await until(() => received() === 3, { what: 'all are received' });
    const disconnected = nextEvent(consumer, 'disconnected');
    proxy.refuse();
    proxy.cut();
    await disconnected;
    finish.resolve();
    await until(() => consumer.stats().processed === 3, { what: 'all are processed' });
    expect(await pendingIn(stream)).toBe(3);
    proxy.accept();
    await until(async () => (await pendingIn(stream)) === 0, { what: 'all are acknowledged', timeoutMs: 20_000 });
    expect(calls).toEqual([0, 1, 2]);
  });

  test('stop ends a read that waits at once, and the member leaves the group', async () => {
    const stream = streamName();
    const { consumer } = member(stream);
    await consumer.start();
    await until(() => isReading(stream), { what: 'it waits for entries' });
    const since = performance.now();
    await consumer.stop();
    expect(performance.now() - since).toBeLessThan(1_000);
    expect(await namesIn(stream)).toEqual([]);
    // Nothing reads on.
    await publishTo(stream, envelopes(0, 1));
    expect(await pendingIn(stream)).toBe(0);
    await consumer.start();
    await until(() => consumer.stats().processed === 1, { what: 'it reads again' });
  });

  test('stop is as fast without a connection', async () => {
    const stream = streamName();
    const proxy = await startProxy();
    const { consumer } = member(stream, {}, proxy.url(server.url));
    await consumer.start();
    const disconnected = nextEvent(consumer, 'disconnected');
    proxy.stall();
    proxy.cut();
    await disconnected;
    await until(() => proxy.connections === 2, { what: 'it connects again, in vain' });
    const since = performance.now();
    await consumer.stop();
    expect(performance.now() - since).toBeLessThan(1_000);
  });

  test('a member with the same name goes on where it was before a crash; what was deleted meanwhile is acknowledged', async () => {
    const stream = streamName();
    await admin.xGroupCreate(stream, 'billing', '0', { MKSTREAM: true });
    const [, deleted = ''] = await publishTo(stream, envelopes(0, 3));
    await admin.xReadGroup('billing', 'billing-0', { key: stream, id: '>' });
    await admin.xDel(stream, deleted);
    await publishTo(stream, envelopes(3, 4));
    const { consumer, calls } = member(stream, { name: 'billing-0', fromBeginning: false });
    await consumer.start();
    await until(() => calls.length === 3, { what: 'all are processed' });
    expect(calls).toEqual([0, 2, 3]);
    await until(async () => (await pendingIn(stream)) === 0, { what: 'all are acknowledged' });
  });

  test('creates the group again when the stream was deleted', async () => {
    const stream = streamName();
    const { consumer, calls } = member(stream);
    await consumer.start();
    await until(() => isReading(stream), { what: 'it waits for entries' });
    await admin.del(stream);
    await publishTo(stream, envelopes(0, 2));
    await until(() => calls.length === 2, { what: 'both are processed', timeoutMs: 20_000 });
    expect(calls).toEqual([0, 1]);
  });

  test('a new group may skip what the stream has; prefix and protocol are those of the client', async () => {
    const stream = streamName();
    await publishTo(`app:${stream}`, envelopes(0, 2));
    const client = createClient({ url: server.url, RESP: 2, keyPrefix: 'app:' });
    const { consumer, calls } = member(stream, { client, fromBeginning: false });
    await consumer.start();
    await publishTo(`app:${stream}`, envelopes(2, 3));
    await until(() => calls.length > 0, { what: 'the new one is processed' });
    expect(calls).toEqual([2]);
    await publishTo(`app:${stream}`, [{ ...envelopeOf('a', 3), body: 'no json' }]);
    await lettersIn(`app:${stream}:dead`, 1);
  });

  test('refuses wrong options, and does not start without a server', async () => {
    const given = { client: createClient({ url: server.url }), stream: 's', group: 'g', handle() {} };
    const wrong = (more: object) => () => consumeRedis({ ...given, ...more } as RedisConsumerOptions<unknown>);
    expect(wrong({ client: {} })).toThrow('client must be a client of the package redis.');
    expect(wrong({ stream: undefined })).toThrow('stream must be the name of a stream.');
    expect(wrong({ group: undefined })).toThrow('group must be the name of a consumer group.');
    expect(wrong({ name: 'released' })).toThrow("name must not be 'released'");
    expect(wrong({ claimIdleMs: 99 })).toThrow('claimIdleMs must be a whole number from 100');
    const { consumer } = member('s', {}, 'redis://127.0.0.1:1');
    await expect(consumer.start()).rejects.toThrow('ECONNREFUSED');
    await admin.set('text', 'x');
    await expect(member('text').consumer.start()).rejects.toThrow('WRONGTYPE');
  });

  /** Whether a member waits for entries of the stream, as opposed to being on its way there. */
  async function isReading(stream: string): Promise<boolean> {
    const clients = String(await admin.sendCommand(['CLIENT', 'LIST']));
    return (await namesIn(stream)).length > 0 && /flags=\S*b\S* .*cmd=xreadgroup/.test(clients);
  }
});
