import { describe, expect, test } from 'vitest';
import { consumeKafka, type KafkaConsumerOptions } from '../../src/publishers/kafka.ts';
import { silent } from './consumer-suite.ts';

type Client = NonNullable<KafkaConsumerOptions<unknown>['consumer']>;
type CrashListener = Parameters<Client['on']>[1];

/** A client of kafkajs that connects to nothing, and crashes when the test says so. */
class FakeClient implements Client {
  readonly events = { CRASH: 'consumer.crash' } as const;
  readonly listeners = new Set<CrashListener>();

  async connect() {}
  async subscribe() {}
  async run() {}
  async disconnect() {}

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
});
