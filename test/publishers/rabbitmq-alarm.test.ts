import { connect } from 'amqplib';
import { expect, it } from 'vitest';
import { rabbitmq } from '../../src/publishers/rabbitmq.ts';
import { testMessage } from '../../src/testing/index.ts';
import { fileService } from '../support/services.ts';
import { until } from '../support/wait.ts';

// It takes more than that to start, so RabbitMQ raises its alarm at once and reads from no publisher.
const server = fileService('rabbitmq', { settings: { 'vm_memory_high_watermark.absolute': '1MB' } });

it('is unavailable while RabbitMQ takes no messages, in one call after the other, and closes', async () => {
  const observer = await connect(server.url);
  observer.on('error', () => {});
  await (await observer.createChannel()).assertQueue('orders');
  const publisher = rabbitmq({ url: server.url });
  await publisher.connect(AbortSignal.timeout(10_000));
  const publish = async () => {
    const [outcome] = await publisher.publish([testMessage({ topic: 'orders' })], AbortSignal.timeout(10_000));
    return outcome;
  };
  // RabbitMQ blocks a connection when something is published on it, and may still take what it blocks it for.
  await until(async () => (await publish())?.kind === 'unavailable', { what: 'RabbitMQ blocks the connection' });
  for (let call = 0; call < 3; call++) {
    expect(await publish()).toEqual({
      kind: 'unavailable',
      reason: expect.stringMatching(/takes no messages.*memory/),
    });
  }
  await expect(publisher.health(AbortSignal.timeout(10_000))).rejects.toThrow(/takes no messages/);
  await publisher.close();
  await observer.close();
}, 30_000);
