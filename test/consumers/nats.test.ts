import { randomUUID } from 'node:crypto';
import { AckPolicy, type Consumer, type ConsumerConfig, jetstream, jetstreamManager } from '@nats-io/jetstream';
import { connect, headers as createHeaders, type NatsConnection, nanos } from '@nats-io/transport-node';
import { afterAll, beforeAll, describe, expect, onTestFinished, test } from 'vitest';
import { type ReceivedEvent, Reject } from '../../src/index.ts';
import { consumeNats } from '../../src/publishers/nats.ts';
import { fileService } from '../support/services.ts';
import { startTcpProxy } from '../support/tcp-proxy.ts';
import { deferred, until, within } from '../support/wait.ts';
import { type ConsumerScene, envelopeOf, silent, testConsumer } from './consumer-suite.ts';

const server = fileService('nats');
let connection: NatsConnection;
beforeAll(async () => {
  connection = await connect({ servers: server.url });
});
afterAll(() => connection?.close());

/** With a long time to acknowledge, what is not acknowledged, nor handed back, does not come again during a test. */
async function createScene(): Promise<ConsumerScene> {
  const stream = `orders-${randomUUID()}`;
  const manager = await jetstreamManager(connection);
  await manager.streams.add({ name: stream, subjects: [stream] });
  await manager.consumers.add(stream, {
    durable_name: 'billing',
    ack_policy: AckPolicy.Explicit,
    ack_wait: nanos(120_000),
  });
  const terminated: { stream_seq: number; reason?: string }[] = [];
  connection.subscribe(`$JS.EVENT.ADVISORY.CONSUMER.MSG_TERMINATED.${stream}.>`, {
    callback: (_error, message) => void terminated.push(message.json()),
  });
  let consuming: NatsConnection | undefined;
  return {
    consumer: (options) =>
      consumeNats({
        ...options,
        async consumer() {
          if (consuming === undefined || consuming.isClosed()) {
            consuming = await connect({ servers: server.url, reconnect: false });
          }
          return jetstream(consuming).consumers.get(stream, 'billing');
        },
      }),
    async publish(messages) {
      for (const { body, headers } of messages) {
        const natsHeaders = createHeaders();
        for (const [name, value] of Object.entries(headers)) natsHeaders.set(name, value);
        await jetstream(connection).publish(stream, body as string, { headers: natsHeaders });
      }
    },
    async deadLetters(count) {
      await until(() => terminated.length >= count, { what: `${count} advisories` });
      return Promise.all(
        terminated.map(async ({ stream_seq, reason }) => {
          const message = await manager.streams.getMessage(stream, { seq: stream_seq });
          return { body: message?.string() ?? '', reason };
        }),
      );
    },
    async unsettled() {
      await consuming?.close();
      return (await manager.consumers.info(stream, 'billing')).num_ack_pending;
    },
    async cutConnections() {
      // Messages that were on their way to the closed connection come again only after this time.
      await manager.consumers.update(stream, 'billing', { ack_wait: nanos(2_000) });
      await consuming?.close();
    },
  };
}

testConsumer('NATS JetStream', createScene, { cutsConnections: true });

describe('the consumer of NATS JetStream', () => {
  /** A stream with a durable consumer, and a connection for its consumer that a test may close. */
  async function createStream(config: Partial<ConsumerConfig> = {}) {
    const stream = `orders-${randomUUID()}`;
    const manager = await jetstreamManager(connection);
    await manager.streams.add({ name: stream, subjects: [stream] });
    await manager.consumers.add(stream, { durable_name: 'billing', ack_policy: AckPolicy.Explicit, ...config });
    const open = async () => {
      const own = await connect({ servers: server.url, reconnect: false });
      onTestFinished(() => own.close());
      return own;
    };
    const get = (own: NatsConnection) => jetstream(own).consumers.get(stream, 'billing');
    return { stream, manager, open, get };
  }

  test.each(['after the stop', 'never'])(
    'stop ends while a lost consumer is opened again, which ends %s',
    async (end) => {
      const { open, get } = await createStream();
      const first = await open();
      const [again, answer] = [deferred(), deferred()];
      const consumer = consumeNats({
        logger: silent,
        async consumer() {
          if (!first.isClosed()) return get(first);
          again.resolve();
          await answer.promise;
          return get(connection);
        },
        handle() {},
      });
      await consumer.start();
      await first.close();
      await within(again.promise, { what: 'it is opened again' });
      const stopped = consumer.stop();
      await until(() => consumer.stats().state !== 'running', { what: 'it is stopping' });
      if (end === 'after the stop') answer.resolve();
      await within(stopped, { what: 'it has stopped', timeoutMs: 5_000 });
      expect(consumer.stats().state).toBe('idle');
    },
  );

  test('stop ends when it is called as a lost consumer has been opened again', async () => {
    const { open, get } = await createStream();
    // So many turns after the client has answered.
    for (let turns = 0; turns < 12; turns++) {
      const first = await open();
      const opened = deferred();
      const consumer = consumeNats({
        logger: silent,
        async consumer() {
          if (!first.isClosed()) return get(first);
          const real = await get(connection);
          return {
            info: () => real.info(),
            async consume(options) {
              const messages = await real.consume(options);
              opened.resolve();
              return messages;
            },
          };
        },
        handle() {},
      });
      await consumer.start();
      await first.close();
      await within(opened.promise, { what: 'it is opened again' });
      for (let turn = 0; turn < turns; turn++) await Promise.resolve();
      await within(consumer.stop(), { what: `it has stopped, after ${turns} turns`, timeoutMs: 5_000 });
    }
  });

  test('start fails when nothing answers in time', async () => {
    const consumer = consumeNats({ consumer: () => new Promise(() => {}), connectTimeoutMs: 100, handle() {} });
    await expect(consumer.start()).rejects.toThrow('No answer in time');
    expect(consumer.stats().state).toBe('idle');
  });

  test('start that fails leaves nothing behind', async () => {
    const { open, get } = await createStream();
    const real = await get(await open());
    const consumer = consumeNats({
      consumer: async () => ({ info: () => real.info(), consume: () => Promise.reject(new Error('no permission')) }),
      handle() {},
    });
    const timers = () => process.getActiveResourcesInfo().filter((name) => name === 'Timeout').length;
    const before = timers();
    await expect(consumer.start()).rejects.toThrow('no permission');
    expect(timers()).toBeLessThanOrEqual(before);
  });

  test('a dead letter that is not sent is not counted, and NATS delivers the message again', async () => {
    const { stream, open, get } = await createStream({ ack_wait: nanos(500) });
    let terminated = 0;
    connection.subscribe(`$JS.EVENT.ADVISORY.CONSUMER.MSG_TERMINATED.${stream}.>`, {
      callback: () => void terminated++,
    });
    const first = await open();
    const consumer = consumeNats({
      logger: silent,
      consumer: () => get(first.isClosed() ? connection : first),
      async handle() {
        await first.close();
        throw new Reject('no such customer');
      },
    });
    onTestFinished(() => consumer.stop());
    await consumer.start();
    await jetstream(connection).publish(stream, String(envelopeOf('a', 0).body));
    await until(() => terminated === 1, { what: 'NATS has terminated it' });
    expect(consumer.stats()).toMatchObject({ released: 1, deadLettered: 1 });
  });

  test('a dead letter that NATS confirms after stopTimeoutMs is not reported as released', async () => {
    const { stream, get } = await createStream();
    const advisories: number[] = [];
    connection.subscribe(`$JS.EVENT.ADVISORY.CONSUMER.MSG_TERMINATED.${stream}.>`, {
      callback: (_error, message) => void advisories.push(message.json<{ stream_seq: number }>().stream_seq),
    });
    const real = await get(connection);
    const [asked, answer, working, abandoned] = [deferred(), deferred(), deferred(), deferred()];
    let requests = 0;
    const released: string[] = [];
    const warnings: string[] = [];
    const consumer = consumeNats({
      logger: { ...silent, warn: (_fields: object, message: string) => void warnings.push(message) },
      stopTimeoutMs: 50,
      consumer: async () => ({
        consume: (options) => real.consume(options),
        async info() {
          // The first request opens the consumer, the second one confirms the termination.
          if (++requests === 2) {
            asked.resolve();
            await answer.promise;
          }
          return real.info();
        },
      }),
      async handle(event, { signal }) {
        if (numberOf(event) === 0) throw new Reject('no such customer');
        // This one shows that the consumer has given up what is in progress.
        signal.addEventListener('abort', () => abandoned.resolve());
        working.resolve();
        await abandoned.promise;
        throw new Error('aborted');
      },
    });
    consumer.on('released', ({ eventId }) => void released.push(eventId));
    await consumer.start();
    const ids = [randomUUID(), randomUUID()];
    for (const [n, id] of ids.entries()) {
      await jetstream(connection).publish(stream, String(envelopeOf('a', n, id).body));
    }
    await within(Promise.all([asked.promise, working.promise]), { what: 'both are in progress' });
    await until(() => advisories.length === 1, { what: 'NATS has terminated it' });
    const stopped = consumer.stop();
    await within(abandoned.promise, { what: 'stopTimeoutMs is over' });
    await until(() => released.length > 0, { what: 'the other one is released' });
    answer.resolve();
    await within(stopped, { what: 'the consumer has stopped' });
    expect(released).toEqual([ids[1]]);
    expect(warnings).not.toContain('dead letter not accepted, message left to the broker');
    expect(consumer.stats()).toMatchObject({ state: 'idle', released: 1, deadLettered: 1 });
  });

  const numberOf = (event: ReceivedEvent) => (event.payload as { n: number }).n;

  /** Receives so many messages, as a process that does not acknowledge them. */
  async function receive(consumer: Consumer, count: number): Promise<void> {
    let received = 0;
    for await (const _message of await consumer.fetch({ max_messages: count })) received++;
    expect(received).toBe(count);
  }

  test('after a crash processes what the crashed process had before newer messages', async () => {
    const { stream, open, get } = await createStream({ ack_wait: nanos(1_500), max_ack_pending: 6 });
    const publish = async (n: number) => jetstream(connection).publish(stream, String(envelopeOf('a', n).body));
    for (let n = 0; n < 4; n++) await publish(n);
    const crashed = await open();
    await receive(await get(crashed), 4);
    await crashed.close();
    for (let n = 4; n < 10; n++) await publish(n);
    const calls: number[] = [];
    const consumer = consumeNats({
      consumer: () => get(connection),
      logger: silent,
      prefetchMax: 2,
      handle: (event) => void calls.push(numberOf(event)),
    });
    onTestFinished(() => consumer.stop());
    await consumer.start();
    await until(() => calls.length >= 10, { what: 'all are processed', timeoutMs: 20_000 });
    expect(calls).toEqual([0, 1, 2, 3, 4, 5, 6, 7, 8, 9]);
  });

  test('does not wait longer than ack_wait for what another process works on, and hands back what it held on stop', async () => {
    const { stream, manager, open, get } = await createStream({ ack_wait: nanos(600) });
    const publish = async (n: number) => jetstream(connection).publish(stream, String(envelopeOf('a', n).body));
    const finish = deferred();
    const started = deferred();
    const create = async (handle: (event: ReceivedEvent) => unknown) => {
      const own = await open();
      const consumer = consumeNats({ consumer: () => get(own), logger: silent, prefetchMax: 1, handle });
      onTestFinished(() => consumer.stop());
      await consumer.start();
      return consumer;
    };
    await publish(0);
    await create(async () => {
      started.resolve();
      await finish.promise;
    });
    await within(started.promise, { what: 'the first one is in work' });
    const calls: number[] = [];
    const handle = (event: ReceivedEvent) => void calls.push(numberOf(event));
    const second = await create(handle);
    await publish(1);
    await publish(2);
    const undelivered = async () => (await manager.consumers.info(stream, 'billing')).num_pending;
    await until(async () => (await undelivered()) === 0, { what: 'both are delivered' });
    await second.stop();
    expect(calls).toEqual([]);
    await create(handle);
    await publish(3);
    await until(() => calls.length >= 3, { what: 'it does not wait for ever', timeoutMs: 20_000 });
    expect(calls).toEqual([1, 2, 3]);
    finish.resolve();
  });

  test('holds back 64 MiB of newer messages at most', async () => {
    const { stream, manager, open, get } = await createStream({ ack_wait: nanos(120_000) });
    const publish = async (n: number, bytes = 0) =>
      jetstream(connection).publish(stream, String(envelopeOf('a', n).body).padEnd(bytes));
    await publish(0);
    const crashed = await open();
    await receive(await get(crashed), 1);
    await crashed.close();
    const calls: number[] = [];
    const consumer = consumeNats({
      consumer: () => get(connection),
      logger: silent,
      handle: (event) => void calls.push(numberOf(event)),
    });
    onTestFinished(() => consumer.stop());
    await consumer.start();
    for (let n = 1; n <= 66; n++) await publish(n, 1_000_000);
    const undelivered = async () => (await manager.consumers.info(stream, 'billing')).num_pending;
    await until(async () => (await undelivered()) === 0, { what: 'they are delivered', timeoutMs: 20_000 });
    expect(calls).toEqual([]);
    for (let n = 67; n <= 68; n++) await publish(n, 1_000_000);
    await until(() => calls.length >= 68, { what: 'they are processed, long before ack_wait', timeoutMs: 20_000 });
    expect(calls).toEqual(Array.from({ length: 68 }, (_, n) => n + 1));
  });

  test('stop resolves when NATS has the acknowledgements that are in flight', async () => {
    const { stream, manager, get } = await createStream();
    const { hostname, port } = new URL(server.url);
    const proxy = await startTcpProxy({ host: hostname, port: Number(port) });
    const slow = await connect({ servers: proxy.url(server.url), reconnect: false });
    onTestFinished(async () => {
      await slow.close();
      await proxy.close();
    });
    const consumer = consumeNats({ logger: silent, consumer: () => get(slow), handle: () => proxy.delayMs(300) });
    await consumer.start();
    await jetstream(connection).publish(stream, String(envelopeOf('a', 0).body));
    await until(() => consumer.stats().processed === 1, { what: 'it is processed' });
    await consumer.stop();
    expect((await manager.consumers.info(stream, 'billing')).num_ack_pending).toBe(0);
  });

  test('keeps a message that takes longer than ack_wait, and acknowledges it', async () => {
    const { stream, manager, get } = await createStream({ ack_wait: nanos(1_000) });
    let calls = 0;
    const consumer = consumeNats({
      consumer: () => get(connection),
      logger: silent,
      async handle() {
        calls++;
        await new Promise((resolve) => setTimeout(resolve, 2_500));
      },
    });
    onTestFinished(() => consumer.stop());
    await consumer.start();
    await jetstream(connection).publish(stream, String(envelopeOf('a', 0).body));
    await until(() => consumer.stats().processed === 1, { what: 'it is processed', timeoutMs: 20_000 });
    const isAcknowledged = async () => (await manager.consumers.info(stream, 'billing')).num_ack_pending === 0;
    await until(isAcknowledged, { what: 'it is acknowledged' });
    expect(await manager.consumers.info(stream, 'billing')).toMatchObject({ num_redelivered: 0, num_pending: 0 });
    expect(calls).toBe(1);
  });
});
