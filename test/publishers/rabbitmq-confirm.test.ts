import { connect } from 'amqplib';
import { expect, it, onTestFinished } from 'vitest';
import { rabbitmq } from '../../src/publishers/rabbitmq.ts';
import { testMessage } from '../../src/testing/index.ts';
import { fileService } from '../support/services.ts';
import { startTcpProxy } from '../support/tcp-proxy.ts';

const server = fileService('rabbitmq');

it('a message that is not confirmed in time is unavailable, and the connection is kept', async () => {
  const { hostname, port } = new URL(server.url);
  const proxy = await startTcpProxy({ host: hostname, port: Number(port) });
  onTestFinished(() => proxy.close());
  const observer = await connect(server.url);
  onTestFinished(() => observer.close());
  await (await observer.createChannel()).assertQueue('orders');
  const publisher = rabbitmq({ url: proxy.url(server.url), confirmTimeoutMs: 300 });
  onTestFinished(() => publisher.close());
  const publish = (count: number) => {
    const batch = Array.from({ length: count }, (_, n) => testMessage({ topic: 'orders', key: String(n) }));
    return publisher.publish(batch, AbortSignal.timeout(10_000));
  };
  expect(await publish(3)).toEqual(Array(3).fill({ kind: 'delivered' }));
  proxy.stall();
  const begunAt = performance.now();
  for (const outcome of await publish(3)) {
    expect(outcome).toEqual({
      kind: 'unavailable',
      reason: "RabbitMQ did not confirm it within 300 ms: exchange '', routing key 'orders'.",
    });
  }
  expect(performance.now() - begunAt).toBeLessThan(5_000);
  proxy.resume();
  // Confirms that come late are confused with no others, and no new connection was needed.
  for (let call = 0; call < 3; call++) expect(await publish(3)).toEqual(Array(3).fill({ kind: 'delivered' }));
  expect(proxy.connections).toBe(1);
}, 60_000);
