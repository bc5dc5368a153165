import { connect } from 'amqplib';
import { describe, expect, test } from 'vitest';
import { rabbitmq } from '../../src/publishers/rabbitmq.ts';
import { outOfOrder, rabbitMqQueue } from '../support/broker-contents.ts';
import { withScenario } from '../support/relay-scenario.ts';
import { fileService } from '../support/services.ts';
import { until } from '../support/wait.ts';

const server = fileService('rabbitmq');

async function onServer(
  work: (channel: Awaited<ReturnType<Awaited<ReturnType<typeof connect>>['createChannel']>>) => Promise<unknown>,
) {
  const connection = await connect(server.url);
  try {
    await work(await connection.createChannel());
  } finally {
    await connection.close();
  }
}

describe('RabbitMQ restarted in the middle of a drain, with its exchange gone', () => {
  test.skipIf(server.given)(
    'events become failures with a clear reason, none is silently gone, and all arrive once it is there again',
    withScenario(async (scenario) => {
      const queue = await rabbitMqQueue(server.url);
      const declare = () =>
        onServer(async (channel) => {
          await channel.assertExchange('orders', 'topic', { durable: true });
          await channel.bindQueue(queue.name, 'orders', 'order.#');
        });
      await declare();
      const count = 4_000;
      const events = Array.from({ length: count }, (_, index) => ({
        aggregateId: `a${index % 50}`,
        type: 'order.created',
        payload: { n: Math.floor(index / 50) },
      }));
      await scenario.emit(events);
      const relay = await scenario.relay('r', {
        handlers: {},
        retry: { baseMs: 100, capMs: 500, attemptsMax: 1_000 },
        destinations: {
          orders: {
            publisher: rabbitmq({ url: server.url, exchange: 'orders', confirmTimeoutMs: 2_000 }),
            probeDelayMs: 200,
            probeDelayMsMax: 1_000,
            publishTimeoutMs: 5_000,
          },
        },
      });
      await until(() => relay.stats().delivered > 200, { what: 'events flow', timeoutMs: 30_000 });
      await onServer((channel) => channel.deleteExchange('orders'));
      await server.own.restart();
      await until(() => relay.stats().failed > 0, { what: 'the missing exchange was noticed', timeoutMs: 60_000 });
      const [failure] = await scenario.db.query(
        `select target, code, error from postcommit.outbox_failures order by failed_at desc limit 1`,
      );
      expect(failure).toMatchObject({ target: 'orders', code: 'POSTCOMMIT_E_PUBLISH_FAILED' });
      expect(failure.error).toMatch(/exchange.*orders/i);
      await declare();
      const arrivals = await queue.arrivals(count, 90_000);
      expect(new Set(arrivals.map(({ id }) => id)).size).toBe(count);
      expect(outOfOrder(arrivals)).toEqual([]);
      expect(relay.stats().deadLettered).toBe(0);
    }),
    240_000,
  );
});
