import { randomUUID } from 'node:crypto';
import { describe, expect, test, vi } from 'vitest';
import { consumeKafka, type KafkaBatchPayload, type KafkaConsumerOptions } from '../../src/publishers/kafka.ts';
import { Reject } from '../../src/relay/event/reject.ts';
import { deferred, until, within } from '../support/wait.ts';
import { silent } from './consumer-suite.ts';

type Consumer = NonNullable<KafkaConsumerOptions<unknown>['consumer']>;
type EachBatch = Parameters<Consumer['run']>[0]['eachBatch'];

/** A batch of messages that cannot be read. `resolved` are their offsets that may be committed. */
function unreadable(count: number) {
  const resolved: string[] = [];
  const payload: KafkaBatchPayload = {
    batch: {
      topic: 'orders',
      partition: 0,
      messages: Array.from({ length: count }, (_, n) => ({ value: Buffer.from('no event'), offset: String(n) })),
    },
    resolveOffset: (offset) => void resolved.push(offset),
    heartbeat: async () => {},
    commitOffsetsIfNecessary: async () => {},
    isRunning: () => true,
    isStale: () => false,
  };
  return { payload, resolved };
}

/** A dead-letter producer whose calls settle when the test says so. */
function holdingProducer() {
  const sent = deferred();
  let calls = 0;
  const send = () => {
    calls++;
    return sent.promise;
  };
  return { producer: { send }, sent, calls: () => calls };
}

/** The answer of a broker that refuses what was sent. */
function refuse(sent: Promise<unknown>): Promise<never> {
  sent.catch(() => {}); // It is not waited for.
  return Promise.reject(new Error('not the leader'));
}

const common = { logger: silent, stopTimeoutMs: 50, handle() {} };

describe('a dead letter that the producer neither takes nor refuses', () => {
  test('is given up by stop after stopTimeoutMs: its message stays with the broker', async () => {
    const { producer, calls } = holdingProducer();
    const orders = consumeKafka({ ...common, deadLetter: { producer, topic: 'dead' } });
    const { payload, resolved } = unreadable(1);
    const batch = orders.eachBatch(payload);
    await until(() => calls() === 1, { what: 'it is being sent' });
    await within(orders.stop(), { what: 'the consumer has stopped' });
    await batch;
    expect(resolved).toEqual([]);
    expect(orders.stats()).toMatchObject({ state: 'idle', inFlight: 0, waiting: 0, released: 1, deadLettered: 0 });
  });

  test('is reported as released, with its event', async () => {
    const { producer, calls } = holdingProducer();
    const released = vi.fn();
    const handle = () => {
      throw new Reject('never');
    };
    const orders = consumeKafka({ ...common, handle, deadLetter: { producer, topic: 'dead' } });
    orders.on('released', released);
    const eventId = randomUUID();
    const message = { value: Buffer.from('1'), offset: '0', headers: { 'event-id': eventId, 'event-type': 'created' } };
    const { payload } = unreadable(1);
    const batch = orders.eachBatch({ ...payload, batch: { ...payload.batch, messages: [message] } });
    await until(() => calls() === 1, { what: 'it is being sent' });
    await within(orders.stop(), { what: 'the consumer has stopped' });
    await batch;
    expect(orders.stats()).toMatchObject({ released: 1, deadLettered: 0 });
    expect(released.mock.calls).toEqual([[expect.objectContaining({ eventId, eventType: 'created' })]]);
  });

  test('the log says which refusal is tried again, and which leaves the message to the broker', async () => {
    const { producer, sent, calls } = holdingProducer();
    const warnings: string[] = [];
    const logger = { ...silent, warn: (_fields: object, message: string) => void warnings.push(message) };
    const orders = consumeKafka({
      ...common,
      logger,
      stopTimeoutMs: 30_000,
      deadLetter: {
        producer: { send: () => (calls() === 0 ? refuse(producer.send()) : producer.send()) },
        topic: 'dead',
      },
    });
    const { payload, resolved } = unreadable(1);
    const batch = orders.eachBatch(payload);
    await until(() => calls() === 2, { what: 'it is sent again' });
    const stopped = orders.stop();
    await until(() => orders.stats().state === 'stopping', { what: 'it is stopping' });
    sent.reject(new Error('the topic does not exist'));
    await within(stopped, { what: 'the consumer has stopped' });
    await batch;
    expect(resolved).toEqual([]);
    expect(warnings).toEqual([
      'dead letter not accepted, retrying',
      'dead letter not accepted, message left to the broker',
    ]);
  });

  test('is not sent any more when its turn comes after that', async () => {
    const { producer, calls } = holdingProducer();
    const orders = consumeKafka({ ...common, inFlightMax: 2, deadLetter: { producer, topic: 'dead' } });
    const { payload, resolved } = unreadable(5);
    const batch = orders.eachBatch(payload);
    await until(() => calls() === 2, { what: 'two are being sent' });
    await within(orders.stop(), { what: 'the consumer has stopped' });
    await batch;
    expect(calls()).toBe(2);
    expect(resolved).toEqual([]);
    expect(orders.stats()).toMatchObject({ released: 5, deadLettered: 0 });
  });

  test('counts when the producer takes it while stop waits', async () => {
    const { producer, sent, calls } = holdingProducer();
    const orders = consumeKafka({ ...common, stopTimeoutMs: 30_000, deadLetter: { producer, topic: 'dead' } });
    const { payload, resolved } = unreadable(1);
    const batch = orders.eachBatch(payload);
    await until(() => calls() === 1, { what: 'it is being sent' });
    const stopped = orders.stop();
    await until(() => orders.stats().state === 'stopping', { what: 'it is stopping' });
    sent.resolve();
    await within(stopped, { what: 'the consumer has stopped' });
    await batch;
    expect(resolved).toEqual(['0']);
    expect(orders.stats()).toMatchObject({ released: 0, deadLettered: 1 });
  });

  test('is given up also when the consumer crashed and started again since', async () => {
    const { producer, calls } = holdingProducer();
    let eachBatch: EachBatch = async () => {};
    let crash: Parameters<Consumer['on']>[1] = () => {};
    const consumer: Consumer = {
      connect: async () => {},
      disconnect: async () => {},
      subscribe: async () => {},
      async run(config) {
        eachBatch = config.eachBatch;
      },
      events: { CRASH: 'consumer.crash' },
      on(_event, listener) {
        crash = listener;
        return () => {};
      },
    };
    const orders = consumeKafka({ ...common, consumer, topics: ['orders'], deadLetter: { producer, topic: 'dead' } });
    await orders.start();
    const batch = eachBatch(unreadable(1).payload);
    await until(() => calls() === 1, { what: 'it is being sent' });
    crash({ payload: { error: new Error('gone'), restart: false } });
    expect(orders.stats().state).toBe('idle');
    await orders.start();
    await within(orders.stop(), { what: 'the consumer has stopped' });
    await batch;
    expect(orders.stats()).toMatchObject({ inFlight: 0, released: 1, deadLettered: 0 });
  });
});

describe('a message that cannot be read, whose turn comes', () => {
  test('after the stop: it stays with the broker', async () => {
    const { producer, calls } = holdingProducer();
    const orders = consumeKafka({ ...common, deadLetter: { producer, topic: 'dead' } });
    await orders.stop();
    const { payload, resolved } = unreadable(2);
    await within(orders.eachBatch(payload), { what: 'the batch has ended' });
    expect(resolved).toEqual([]);
    expect(calls()).toBe(0);
    expect(orders.stats()).toMatchObject({ state: 'idle', released: 2, deadLettered: 0 });
  });

  test('while stop waits for another one: only that one is handed over', async () => {
    const { producer, sent, calls } = holdingProducer();
    const options = { ...common, inFlightMax: 1, stopTimeoutMs: 30_000 };
    const orders = consumeKafka({ ...options, deadLetter: { producer, topic: 'dead' } });
    const { payload, resolved } = unreadable(2);
    const batch = orders.eachBatch(payload);
    await until(() => calls() === 1, { what: 'the first one is being sent' });
    const stopped = orders.stop();
    await until(() => orders.stats().state === 'stopping', { what: 'it is stopping' });
    sent.resolve();
    await within(stopped, { what: 'the consumer has stopped' });
    await batch;
    expect(resolved).toEqual(['0']);
    expect(orders.stats()).toMatchObject({ released: 1, deadLettered: 1 });
  });

  test('after its partition went to another consumer: that one gets it', async () => {
    const { producer, sent, calls } = holdingProducer();
    const options = { ...common, inFlightMax: 1, stopTimeoutMs: 30_000 };
    const orders = consumeKafka({ ...options, deadLetter: { producer, topic: 'dead' } });
    const { payload } = unreadable(2);
    const [lost, noticed] = [deferred(), deferred()];
    const heartbeat = async () => void (lost.settled && noticed.resolve());
    const batch = orders.eachBatch({ ...payload, heartbeat, isStale: () => lost.settled });
    await until(() => calls() === 1, { what: 'the first one is being sent' });
    lost.resolve();
    await within(noticed.promise, { what: 'the consumer has noticed' });
    sent.resolve();
    await batch;
    expect(calls()).toBe(1);
    expect(orders.stats()).toMatchObject({ state: 'running', released: 1, deadLettered: 1 });
  });
});

describe('the logger of a consumer', () => {
  test('is checked when the consumer is made', () => {
    const wrong = (logger: object) => () =>
      consumeKafka({ ...common, deadLetter: 'skip', logger: logger as typeof silent });
    expect(wrong({ warn() {} })).toThrow("logger must be false, or have a function debug, as pino's has.");
    expect(wrong({ ...silent, error: 1 })).toThrow('logger must be false, or have a function error');
  });

  test('false: nothing is written, also not to standard error', async () => {
    const written = vi.spyOn(console, 'error').mockImplementation(() => {});
    try {
      const consumeOne = async (logger?: false) => {
        const { producer, sent } = holdingProducer();
        sent.resolve();
        const orders = consumeKafka({
          handle() {},
          deadLetter: { producer, topic: 'dead' },
          ...(logger === false && { logger }),
        });
        await orders.eachBatch(unreadable(1).payload);
        expect(orders.stats()).toMatchObject({ deadLettered: 1 });
      };
      await consumeOne(false);
      expect(written).not.toHaveBeenCalled();
      await consumeOne();
      expect(written).toHaveBeenCalledOnce();
    } finally {
      written.mockRestore();
    }
  });
});
