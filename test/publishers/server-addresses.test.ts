import { createServer } from 'node:net';
import { inspect } from 'node:util';
import { describe, expect, it, onTestFinished } from 'vitest';
import { kafka } from '../../src/publishers/kafka.ts';
import { nats } from '../../src/publishers/nats.ts';
import type { Publisher } from '../../src/publishers/publisher.ts';
import { rabbitmq } from '../../src/publishers/rabbitmq.ts';
import { redis } from '../../src/publishers/redis.ts';
import { sns } from '../../src/publishers/sns.ts';
import { sqs } from '../../src/publishers/sqs.ts';
import { webhook } from '../../src/publishers/webhook.ts';
import { testMessage } from '../../src/testing/index.ts';
import { privateService } from '../support/services.ts';

/** In every address below. Characters that a URL leaves as they are, so that no form of it is missed. */
const password = 'hunter2secret';
const login = `relay:${password}`;
const aws = {
  region: 'eu-central-1',
  credentials: { accessKeyId: 'relay', secretAccessKey: password },
  clientOptions: { maxAttempts: 1 },
};

/** Whatever a log or an error tracker could show of it. */
function shown(value: unknown): string {
  const text = value instanceof Error ? `${value.message}\n${value.stack}` : '';
  return `${text}\n${inspect(value, { depth: 10, showHidden: true, getters: true, maxStringLength: null })}`;
}

const bad: Record<string, (() => Publisher)[]> = {
  redis: [
    () => redis({ url: `redis://${login}@local host:6379` }),
    () => redis({ url: `redis://${login}@localhost:99999` }),
    () => redis({ url: `redis://${login}@localhost:0` }),
    () => redis({ url: `redis://${login}%zz@localhost` }),
    () => redis({ url: `redis://${login}@localhost/orders` }),
    () => redis({ url: `redis://${login}@/0` }),
    () => redis({ url: `rediss//${login}@localhost` }),
    () => redis({ url: `http://${login}@localhost` }),
    () => redis({ url: `unix://${login}@/` }),
    () => redis({ url: `unix://${login}@/tmp/redis.sock?db=first` }),
    () => redis({ url: `redis://${login}@localhost`, socket: { tls: true } }),
    () => redis({ socket: { host: 'localhost', port: 99_999 }, password }),
  ],
  rabbitmq: [
    () => rabbitmq({ url: `amqp://${login}@local host` }),
    () => rabbitmq({ url: `amqp://${login}@localhost:99999` }),
    () => rabbitmq({ url: `amqp://${login}@localhost:0` }),
    () => rabbitmq({ url: `amqp://${login}%zz@localhost` }),
    () => rabbitmq({ url: `amqp:${login}@localhost` }),
    () => rabbitmq({ url: `http://${login}@localhost` }),
    () => rabbitmq({ url: `amqp://${login}@localhost?heartbeat=often` }),
    () => rabbitmq({ url: { hostname: `${login}@localhost` } }),
    () => rabbitmq({ url: { hostname: 'localhost', port: 99_999, password } }),
  ],
  nats: [
    () => nats({ servers: `nats://${login}@localhost:4222` }),
    () => nats({ servers: `${password}@localhost:4222` }),
    () => nats({ servers: ['localhost:4222', 'local host:4222'], pass: password }),
    () => nats({ servers: 'localhost:99999', pass: password }),
    () => nats({ servers: 'localhost:4222/x', pass: password }),
    () => nats({ servers: 'http://localhost:4222', pass: password }),
  ],
  kafka: [
    () => kafka({ brokers: [`${login}@localhost:9092`] }),
    () => kafka({ brokers: [`sasl://${login}@localhost:9092`] }),
    () => kafka({ brokers: ['localhost:9092', 'localhost:99999'] }),
    () => kafka({ brokers: ['localhost:0'] }),
    () => kafka({ brokers: ['local host:9092'] }),
    () => kafka({ brokers: ['localhost'] }),
    () => kafka({ brokers: ['kafka://localhost:9092'] }),
  ],
  sqs: [
    () => sqs({ ...aws, endpoint: 'localhost:4566' }),
    () => sqs({ ...aws, endpoint: `http://${login}@localhost:4566` }),
    () => sqs({ ...aws, endpoint: 'http://localhost:99999' }),
    () => sqs({ ...aws, region: 'eu central' }),
    () => sqs({ ...aws, queueUrl: `http://${login}@localhost/1/orders` }),
    () => sqs({ ...aws, queueUrl: `http://${login}@local host/1/orders` }),
  ],
  sns: [
    () => sns({ ...aws, endpoint: 'localhost:4566' }),
    () => sns({ ...aws, endpoint: `http://${login}@localhost:4566` }),
    () => sns({ ...aws, endpoint: 'http://localhost:99999' }),
    () => sns({ ...aws, region: 'eu central' }),
  ],
  webhook: [
    () => webhook({ secret: null, url: `http://${login}@local host` }),
    () => webhook({ secret: null, url: `http://${login}@localhost:99999` }),
    () => webhook({ secret: null, url: `ftp://${login}@localhost` }),
    () => webhook({ secret: null, healthUrl: `http:${login}@localhost:99999` }),
  ],
};

describe('a bad address is refused when the publisher is created, by code and without the password', () => {
  it.each(Object.keys(bad))('%s', (kind) => {
    for (const create of bad[kind] ?? []) {
      let thrown: unknown;
      try {
        create();
      } catch (error) {
        thrown = error;
      }
      expect(thrown, String(create)).toMatchObject({ name: 'PostcommitError', code: 'POSTCOMMIT_E_BAD_OPTION' });
      expect(shown(thrown), String(create)).not.toContain(password);
      expect((thrown as Error).cause, String(create)).toBeUndefined();
    }
  });
});

/** Addresses that are good, with a password. */
const good: Record<string, (host: string, port: number) => Publisher> = {
  redis: (host, port) => redis({ url: `redis://${login}@${host}:${port}/0`, connectTimeoutMs: 1_000 }),
  'redis, by options': (host, port) => redis({ socket: { host, port }, password, connectTimeoutMs: 1_000 }),
  rabbitmq: (host, port) => rabbitmq({ url: `amqp://${login}@${host}:${port}/shop`, connectTimeoutMs: 1_000 }),
  nats: (host, port) => nats({ servers: `${host}:${port}`, user: 'relay', pass: password, connectTimeoutMs: 1_000 }),
  kafka: (host, port) =>
    kafka({
      brokers: [`${host}:${port}`],
      sasl: { mechanism: 'plain', username: 'relay', password },
      connectTimeoutMs: 1_000,
    }),
  sqs: (host, port) => sqs({ ...aws, endpoint: `http://${host}:${port}` }),
  sns: (host, port) => sns({ ...aws, endpoint: `http://${host}:${port}` }),
  webhook: (host, port) => webhook({ secret: null, url: `http://${login}@${host}:${port}/`, timeoutMs: 1_000 }),
};

/** Everything that the publisher says of a server that cannot be used. */
async function complaints(publisher: Publisher): Promise<unknown[]> {
  const topic = publisher.kind === 'sns' ? 'arn:aws:sns:eu-central-1:1:orders' : 'orders';
  const signal = () => AbortSignal.timeout(5_000);
  try {
    return [
      await publisher.connect(signal()).catch((error: unknown) => error),
      await publisher.publish([testMessage({ topic })], signal()),
      await publisher.health(signal()).catch((error: unknown) => error),
    ];
  } finally {
    await publisher.close();
  }
}

/** What accepts a connection and answers what no protocol knows, then closes. */
async function babbler(): Promise<number> {
  const server = createServer((socket) => {
    socket.on('error', () => {});
    socket.end('\u0001\u0002 what?\r\n\r\n');
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  onTestFinished(() => void server.close());
  return (server.address() as { port: number }).port;
}

describe('no error or outcome of a server that cannot be used shows the password', () => {
  it.each(Object.keys(good))(
    '%s',
    async (name) => {
      const open = good[name] as (typeof good)[string];
      const closedPort = await babbler();
      for (const [host, port] of [
        ['127.0.0.1', 1],
        ['no-such-host.invalid', closedPort],
        ['127.0.0.1', closedPort],
      ] as const) {
        const seen = await complaints(open(host, port));
        expect(shown(seen), `${host}:${port}`).not.toContain(password);
        expect(seen[1], `${host}:${port}`).toEqual([{ kind: 'unavailable', reason: expect.any(String) }]);
      }
    },
    60_000,
  );

  it('a login that is refused', async (context) => {
    const redisServer = await privateService('redis', context, { settings: { requirepass: 'other' } });
    const natsServer = await privateService('nats', context, {
      settings: { authorization: '{ user: relay, password: other }' },
    });
    const rabbitServer = await privateService('rabbitmq', context);
    const publishers = [
      redis({ url: `redis://:${password}@127.0.0.1:${redisServer.port}` }),
      nats({ servers: natsServer.url, user: 'relay', pass: password }),
      rabbitmq({ url: `amqp://${login}@127.0.0.1:${rabbitServer.port}` }),
    ];
    for (const publisher of publishers) {
      const seen = await complaints(publisher);
      expect(seen[0], publisher.kind).toMatchObject({ code: 'POSTCOMMIT_E_DESTINATION_REFUSED' });
      expect(shown(seen), publisher.kind).not.toContain(password);
    }
  }, 120_000);
});

describe('an address of the route', () => {
  it.each([`http://${login}@exa mple.com/`, `http:/${login}@example.com:99999/`, `ftp://${login}@example.com/`])(
    '%s is not shown with its password by a webhook',
    async (topic) => {
      const outcomes = await webhook({ secret: null }).publish([testMessage({ topic })], AbortSignal.timeout(5_000));
      expect(outcomes).toEqual([{ kind: 'rejected', reason: expect.any(String) }]);
      expect(shown(outcomes)).not.toContain(password);
    },
  );

  it.each([`http://${login}@localhost/1/orders`, `https://${login}@exa mple.com/1/orders`])(
    '%s is the failure of its event alone at SQS, and not shown with its password',
    async (topic) => {
      const publisher = sqs({ ...aws, endpoint: 'http://127.0.0.1:1' });
      const outcomes = await publisher.publish([testMessage({ topic })], AbortSignal.timeout(5_000));
      await publisher.close();
      expect(outcomes).toEqual([{ kind: 'failed', reason: expect.any(String) }]);
      expect(shown(outcomes)).not.toContain(password);
    },
  );
});
