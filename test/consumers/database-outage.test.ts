import { randomUUID } from 'node:crypto';
import pg from 'pg';
import { createClient, type RedisClientType } from 'redis';
import { afterAll, beforeAll, describe, expect, onTestFinished, test } from 'vitest';
import { createInbox, fromPg, type ReceivedEvent, Reject, type TransactionalConsumerContext } from '../../src/index.ts';
import { consumeRedis, type RedisConsumerOptions } from '../../src/publishers/redis.ts';
import { createTestDatabase, type TestDatabase } from '../support/database.ts';
import { fileService } from '../support/services.ts';
import { startTcpProxy } from '../support/tcp-proxy.ts';
import { nextEvent, until } from '../support/wait.ts';
import { envelopeOf, silent } from './consumer-suite.ts';

const server = fileService('redis');
let admin: RedisClientType;
let db: TestDatabase;
beforeAll(async () => {
  admin = createClient({ url: server.url }) as RedisClientType;
  admin.on('error', () => {});
  await admin.connect();
  db = await createTestDatabase();
  await db.query('create table effects (event_id uuid)');
});
afterAll(async () => {
  admin?.destroy();
  await db.close();
});

type Tx = pg.PoolClient;
interface Handling {
  transactional?: boolean;
  handle(event: ReceivedEvent, context: TransactionalConsumerContext<Tx>): unknown;
}
const endOwnSession = 'select pg_terminate_backend(pg_backend_pid())';

/** A consumer whose inbox is behind a proxy, and one event for it. Two attempts. */
async function scene() {
  const { hostname, port } = new URL(db.url);
  const proxy = await startTcpProxy({ host: hostname, port: Number(port) });
  const pool = new pg.Pool({ connectionString: proxy.url(db.url) });
  pool.on('error', () => {});
  onTestFinished(async () => {
    await proxy.close();
    await pool.end();
  });
  const stream = `orders-${randomUUID()}`;
  const id = randomUUID();
  const inbox = createInbox({ db: fromPg<Tx>(pool) });
  async function consume(handling: Handling) {
    const consumer = consumeRedis<Tx>({
      client: createClient({ url: server.url }),
      stream,
      group: 'billing',
      inbox: inbox.consumer(randomUUID()),
      retry: { delaysMs: [1] },
      logger: silent,
      ...handling,
    } as RedisConsumerOptions<Tx>);
    onTestFinished(() => consumer.stop());
    await consumer.start();
    const { body, headers } = envelopeOf('a', 0, id);
    const fields = Object.entries(headers).flatMap(([name, value]) => [`header:${name}`, value]);
    await admin.sendCommand(['XADD', stream, '*', ...fields, 'body', String(body)]);
    return consumer;
  }
  const outage = () => {
    proxy.refuse();
    proxy.cut();
  };
  const effects = async () => (await db.query('select from effects where event_id = $1', [id])).length;
  const pending = async () => (await admin.xPending(stream, 'billing')).pending;
  return { consume, proxy, outage, effects, pending };
}

describe('a database that a consumer loses', () => {
  test('in the handler: the event waits until it is up, and no attempt is counted', async () => {
    const { consume, proxy, outage, effects, pending } = await scene();
    const attempts: number[] = [];
    const consumer = await consume({
      transactional: true,
      async handle(event, { tx, attempt }) {
        await tx.query('insert into effects values ($1)', [event.id]);
        const calls = attempts.push(attempt);
        if (calls === 1) outage();
        if (calls === 2) await tx.query(endOwnSession);
        await tx.query('select 1').catch((error) => {
          throw new Error('wrapped by the handler', { cause: error });
        });
      },
    });
    await until(() => proxy.refused >= 4, { what: 'it tries again during the outage' });
    expect(await pending()).toBe(1);
    proxy.accept();
    await until(() => consumer.stats().processed + consumer.stats().deadLettered === 1, { what: 'it is settled' });
    expect(attempts).toEqual([1, 1, 1]);
    expect(consumer.stats()).toMatchObject({ processed: 1, failed: 0, deadLettered: 0 });
    expect(await effects()).toBe(1);
  });

  test('between the handler and COMMIT, with a handler that writes elsewhere', async () => {
    const { consume, proxy, outage } = await scene();
    const attempts: number[] = [];
    const consumer = await consume({
      async handle(_event, { attempt }) {
        if (attempts.push(attempt) === 2) return;
        outage();
        await until(() => proxy.connections === 0, { what: 'its connection is lost' });
      },
    });
    await until(() => proxy.refused >= 2, { what: 'it tries again during the outage' });
    proxy.accept();
    await until(() => consumer.stats().processed === 1, { what: 'it is processed' });
    expect(attempts).toEqual([1, 1]);
    expect(consumer.stats()).toMatchObject({ failed: 0, deadLettered: 0 });
  });

  test('stop ends during the outage, and the message stays with the broker', async () => {
    const { consume, proxy, outage, pending } = await scene();
    const consumer = await consume({
      transactional: true,
      async handle(_event, { tx }) {
        outage();
        await tx.query('select 1');
      },
    });
    await until(() => proxy.refused >= 2, { what: 'it tries again during the outage' });
    await consumer.stop();
    expect(consumer.stats()).toMatchObject({ released: 1, failed: 0, deadLettered: 0 });
    expect(await pending()).toBe(1);
  });

  test.each([
    ['ends its own connection with every call', [1, 1, 1, 2], (tx: Tx) => tx.query(endOwnSession)],
    [
      'cannot reach another server',
      [1, 2],
      () => Promise.reject(Object.assign(new Error('connect'), { code: 'ECONNREFUSED' })),
    ],
    [
      'rejects the event although its connection is lost',
      [1],
      (tx: Tx) => tx.query(endOwnSession).catch(() => Promise.reject(new Reject('never'))),
    ],
  ])('a handler that %s uses up its attempts', async (_what, expected, misbehave) => {
    const { consume } = await scene();
    const attempts: number[] = [];
    const consumer = await consume({
      transactional: true,
      async handle(_event, { tx, attempt }) {
        attempts.push(attempt);
        await misbehave(tx);
      },
    });
    await nextEvent(consumer, 'deadLettered');
    expect(attempts).toEqual(expected);
  });
});
