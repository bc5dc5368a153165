import { setImmediate as turn } from 'node:timers/promises';
import { describe, expect, test } from 'vitest';
import { consumeKafka, type KafkaConsumerOptions } from '../../src/publishers/kafka.ts';
import { silent } from './consumer-suite.ts';

type Client = NonNullable<KafkaConsumerOptions<unknown>['consumer']>;
type CrashListener = Parameters<Client['on']>[1];

/** A client of kafkajs that connects to nothing, and crashes when the test says so. */
class FakeClient implements Client {
  readonly events = { CRASH: 'consumer.crash' } as const;
  readonly listeners = new Set<CrashListener>();
  disconnects = 0;
  /** What it does before it is disconnected. */
  atDisconnect: (() => Promise<unknown>) | undefined;
  eachBatch: Parameters<Client['run']>[0]['eachBatch'] | undefined;

  async connect() {}
  async subscribe() {}

  async run({ eachBatch }: Parameters<Client['run']>[0]) {
    this.eachBatch = eachBatch;
  }

  async disconnect() {
    this.disconnects++;
    await this.atDisconnect?.();
  }

  on(_event: string, listener: CrashListener): () => void {
    this.listeners.add(listener);
    return () => void this.listeners.delete(listener);
  }

  crash({ restart }: { restart: boolean }) {
    for (const listener of this.listeners) listener({ payload: { error: new Error('cut'), restart } });
  }
}

function consume(client: Client) {
  return consumeKafka({ consumer: client, topics: ['orders'], deadLetter: 'skip', logger: silent, handle() {} });
}

describe('a client that crashes', () => {
  test('has one listener, however often it gives up and is started again', async () => {
    const client = new FakeClient();
    const orders = consume(client);
    let disconnected = 0;
    orders.on('disconnected', () => disconnected++);
    await orders.start();
    for (let n = 0; n < 2; n++) {
      client.crash({ restart: false });
      expect(orders.stats().state).toBe('idle');
      await orders.start();
    }
    client.crash({ restart: true });
    expect([disconnected, client.listeners.size]).toEqual([1, 1]);
    await orders.stop();
  });

  test('and restarts after a stop is disconnected again, before its timer', async () => {
    const client = new FakeClient();
    const orders = consume(client);
    const disconnected: unknown[] = [];
    orders.on('disconnected', (facts) => void disconnected.push(facts));
    await orders.start();
    await orders.stop();
    let disconnectsBefore = client.disconnects;
    client.crash({ restart: false });
    await turn();
    expect(client.disconnects).toBe(disconnectsBefore);
    client.crash({ restart: true });
    // kafkajs sets the timer after it has called its listeners.
    expect(client.disconnects).toBe(disconnectsBefore);
    await Promise.resolve();
    expect(client.disconnects).toBe(disconnectsBefore + 1);
    expect(disconnected).toEqual([]);

    await orders.start();
    disconnectsBefore = client.disconnects;
    client.crash({ restart: true });
    await turn();
    expect([client.disconnects, disconnected.length]).toEqual([disconnectsBefore, 1]);
    await orders.stop();
  });

  test('stays connected if another consumer has started it after the stop', async () => {
    const client = new FakeClient();
    const first = consume(client);
    await first.start();
    await first.stop();
    const second = consume(client);
    await second.start();
    const { disconnects } = client;
    client.crash({ restart: true });
    await turn();
    expect([client.disconnects, client.listeners.size]).toEqual([disconnects, 1]);
    await second.stop();
  });

  test('and delivers after a stop gets an error that it does not retry', async () => {
    const client = new FakeClient();
    const orders = consume(client);
    await orders.start();
    const resolved: string[] = [];
    const deliver = async () =>
      client.eachBatch?.({
        batch: { topic: 'orders', partition: 0, messages: [{ value: Buffer.from('no event'), offset: '7' }] },
        resolveOffset: (offset) => void resolved.push(offset),
        heartbeat: async () => {},
        commitOffsetsIfNecessary: async () => {},
        isRunning: () => true,
        isStale: () => false,
      });
    let ended = false;
    client.atDisconnect = () => deliver().then(() => (ended = true));
    await orders.stop();
    expect(ended).toBe(true);
    client.atDisconnect = undefined;
    await expect(deliver()).rejects.toMatchObject({ code: 'POSTCOMMIT_E_CONSUMER_STOPPING', retriable: false });
    expect(resolved).toEqual([]);
    await orders.start();
    await deliver();
    expect(resolved).toEqual(['7']);
    await orders.stop();
  });
});
