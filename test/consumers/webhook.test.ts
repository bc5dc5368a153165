import { randomBytes, randomUUID } from 'node:crypto';
import { createServer } from 'node:http';
import { connect } from 'node:net';
import { text } from 'node:stream/consumers';
import type pg from 'pg';
import { afterAll, beforeAll, describe, expect, onTestFinished, test, vi } from 'vitest';
import { createInbox, createOutbox, createRelay, fromPg, type Inbox, Reject, raw } from '../../src/index.ts';
import {
  consumeWebhook,
  signWebhook,
  type WebhookConsumer,
  type WebhookConsumerOptions,
  webhook,
} from '../../src/publishers/webhook.ts';
import { createTestDatabase, type TestDatabase } from '../support/database.ts';
import { deferred, until, within } from '../support/wait.ts';
import { envelopeOf, silent } from './consumer-suite.ts';

const secret = `whsec_${randomBytes(32).toString('base64')}`;
let db: TestDatabase;
let inboxes: Inbox<pg.PoolClient>;
beforeAll(async () => {
  db = await createTestDatabase();
  inboxes = createInbox({ db: fromPg<pg.PoolClient>(db.pool) });
  await db.query('create table effects (event_id uuid, n integer)');
});
afterAll(() => db.close());

const inbox = () => inboxes.consumer(randomUUID());

/** A consumer that books each event, behind a server of `node:http`. */
async function booking(more: Partial<WebhookConsumerOptions<pg.PoolClient>> = {}, before?: () => unknown) {
  const consumer = consumeWebhook<pg.PoolClient>({
    secret,
    logger: silent,
    inbox: inbox(),
    transactional: true,
    handle: async (event, { tx }) => {
      await before?.();
      await tx.query('insert into effects values ($1, $2)', [event.id, (event.payload as { n: number }).n]);
    },
    ...more,
  } as WebhookConsumerOptions<pg.PoolClient>);
  const server = createServer(consumer.handleNode);
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  onTestFinished(async () => {
    await consumer.stop();
    server.closeAllConnections();
    server.close();
  });
  const url = `http://127.0.0.1:${(server.address() as { port: number }).port}/events`;
  return { consumer, url };
}

/** A signed request. The parts given replace what was signed. */
function signed(id: string, { sentAt, ...tampered }: { sentAt?: Date; body?: string; headers?: object } = {}) {
  const message = envelopeOf('a', 1, id);
  const body = message.body as string;
  const signature = signWebhook({ eventId: id, body, secret, ...(sentAt && { sentAt }) });
  const headers = { 'content-type': 'application/json', ...message.headers, ...signature, ...tampered.headers };
  return { method: 'POST', body: tampered.body ?? body, headers: headers as Record<string, string> };
}

const effectsOf = async (id: string) => (await db.query('select n from effects where event_id = $1', [id])).length;

describe('the consumer of webhooks', () => {
  test('processes an event once, however often it is sent, with both kinds of servers', async () => {
    const { consumer, url } = await booking();
    const id = randomUUID();
    expect((await fetch(url, signed(id))).status).toBe(204);
    expect((await fetch(url, signed(id))).status).toBe(204);
    expect((await consumer.handleRequest(new Request(url, signed(id)))).status).toBe(204);
    const other = randomUUID();
    expect((await consumer.handleRequest(new Request(url, signed(other)))).status).toBe(204);
    expect([await effectsOf(id), await effectsOf(other)]).toEqual([1, 1]);
    expect(consumer.stats()).toMatchObject({ state: 'running', processed: 2, duplicates: 2 });
  });

  test('answers 401 to what is tampered with, old or not signed, and calls no handler', async () => {
    const { consumer, url } = await booking();
    const id = randomUUID();
    const minutesAgo = (minutes: number) => new Date(Date.now() - minutes * 60_000);
    const { 'webhook-signature': _left, ...unsigned } = signed(id).headers;
    for (const request of [
      signed(id, { body: String(envelopeOf('a', 2, id).body) }),
      signed(id, { headers: { 'webhook-id': randomUUID() } }),
      signed(id, { headers: { 'webhook-timestamp': String(Math.floor(Date.now() / 1_000) - 1) } }),
      signed(id, { sentAt: minutesAgo(6) }),
      signed(id, { sentAt: minutesAgo(-6) }),
      { ...signed(id), headers: unsigned },
    ]) {
      const response = await fetch(url, request);
      expect([response.status, await response.text()]).toEqual([
        401,
        expect.stringContaining('POSTCOMMIT_E_WEBHOOK_UNVERIFIED'),
      ]);
      expect((await consumer.handleRequest(new Request(url, request))).status).toBe(401);
    }
    expect(await effectsOf(id)).toBe(0);
    expect(consumer.stats()).toMatchObject({ processed: 0, deadLettered: 0 });
  });

  test('a captured request with another event id in its headers is refused', async () => {
    const { consumer, url } = await booking({ inbox: inbox(), transactional: false, handle() {} });
    const id = randomUUID();
    const body = '{"n": 1}';
    const raw = (eventId: string) => ({
      method: 'POST',
      body,
      headers: { ...signWebhook({ eventId: id, body, secret }), 'event-id': eventId, 'event-type': 'order.created' },
    });
    expect((await fetch(url, raw(id))).status).toBe(204);
    expect((await fetch(url, raw(randomUUID()))).status).toBe(400);
    expect(consumer.stats()).toMatchObject({ processed: 1, deadLettered: 1 });
  });

  test('answers what the sender must not retry with 4xx', async () => {
    const { consumer, url } = await booking({ bodyBytesMax: 1_000 }, () => {
      throw new Reject('no such customer');
    });
    const send = async (body: string, eventId: string = randomUUID()) => {
      const response = await fetch(url, {
        method: 'POST',
        body,
        headers: { ...signWebhook({ eventId, body, secret }) },
      });
      return [response.status, await response.text()];
    };
    expect(await send('{"not": json')).toEqual([400, expect.stringContaining('POSTCOMMIT_E_BAD_MESSAGE')]);
    expect(await send('{"envelopeVersion": 2, "eventId": "x"}')).toEqual([
      400,
      expect.stringContaining('POSTCOMMIT_E_ENVELOPE_VERSION'),
    ]);
    expect(await send(String(envelopeOf('a', 1, 'order-7').body), 'order-7')).toEqual([
      400,
      expect.stringContaining('POSTCOMMIT_E_BAD_ID'),
    ]);
    expect((await send('x'.repeat(1_001)))[0]).toBe(413);
    const large = new Request(url, { ...signed(randomUUID()), body: 'x'.repeat(1_001) });
    expect((await consumer.handleRequest(large)).status).toBe(413);
    const response = await fetch(url, signed(randomUUID()));
    expect([response.status, await response.text()]).toEqual([422, expect.stringContaining('no such customer')]);
    expect((await fetch(url)).status).toBe(405);
    expect(consumer.stats()).toMatchObject({ processed: 0, deadLettered: 4 });
  });

  test('answers 500 when the handler fails, without its words, and processes the next delivery', async () => {
    let calls = 0;
    const { consumer, url } = await booking({}, () => {
      if (++calls === 1) throw new Error('password is 1234');
    });
    const id = randomUUID();
    const response = await fetch(url, signed(id));
    expect([response.status, await response.text()]).toEqual([500, 'The handler failed.']);
    expect(await effectsOf(id)).toBe(0);
    expect((await fetch(url, signed(id))).status).toBe(204);
    expect(await effectsOf(id)).toBe(1);
    expect(consumer.stats()).toMatchObject({ processed: 1, failed: 1, released: 1, deadLettered: 0 });
  });

  test('answers 503 while the inbox is unavailable', async () => {
    const lost = fromPg<pg.PoolClient>(db.pool);
    const { url } = await booking({ inbox: createInbox({ db: lost, schema: 'not_migrated' }).consumer('a') });
    const response = await fetch(url, signed(randomUUID()));
    expect([response.status, response.headers.get('retry-after')]).toEqual([503, '5']);
    expect(await response.text()).toBe('The inbox is unavailable.');
  });

  test('answers 500 when an event has lost its connection more than twice in a row, over several requests', async () => {
    let behave: (tx: pg.PoolClient) => unknown = () => {};
    const handle = async (_event: unknown, { tx }: { tx: pg.PoolClient }) => void (await behave(tx));
    const { consumer, url } = await booking({ handle } as Partial<WebhookConsumerOptions<pg.PoolClient>>);
    const id = randomUUID();
    const endSession = (tx: pg.PoolClient) => tx.query('select pg_terminate_backend(pg_backend_pid())');
    const statuses = async (behaviours: (typeof behave)[]) => {
      const found: number[] = [];
      for (behave of behaviours) found.push((await fetch(url, signed(id))).status);
      return found;
    };
    expect(await statuses(Array(4).fill(endSession))).toEqual([503, 503, 500, 500]);
    expect(consumer.stats()).toMatchObject({ failed: 2, deadLettered: 0 });
    const fail = () => Promise.reject(new Error('another error'));
    expect(await statuses([fail, endSession, endSession, endSession])).toEqual([500, 503, 503, 500]);
    // The losses of other events are counted by themselves.
    behave = endSession;
    expect((await fetch(url, signed(randomUUID()))).status).toBe(503);
    expect(await statuses([() => {}])).toEqual([204]);
  });

  test('takes inFlightMax and waitingMax verified requests at once', async () => {
    const finish = deferred();
    const { consumer, url } = await booking({ inFlightMax: 1, waitingMax: 1 }, () => finish.promise);
    const answers = [fetch(url, signed(randomUUID())), fetch(url, signed(randomUUID()))];
    await until(() => consumer.stats().waiting === 1, { what: 'one is in flight, the other one waits' });
    const refused = await fetch(url, signed(randomUUID()));
    expect([refused.status, await refused.text()]).toEqual([503, 'Too many requests are waiting.']);
    finish.resolve();
    expect((await Promise.all(answers)).map(({ status }) => status)).toEqual([204, 204]);
    expect((await fetch(url, signed(randomUUID()))).status).toBe(204);
  });

  const forged = () => signWebhook({ eventId: randomUUID(), body: '', secret: randomBytes(32) });

  /** A request with a forged signature whose body does not end, with the text of the answer. */
  function sendSlowly(url: string, { headers = forged() as object, body = '{' } = {}): { answer: Promise<string> } {
    const { hostname, port } = new URL(url);
    const socket = connect(Number(port), hostname);
    onTestFinished(() => void socket.destroy());
    const lines = Object.entries({ host: 'x', 'content-length': body.length + 100, ...headers });
    const head = ['POST /events HTTP/1.1', ...lines.map(([name, value]) => `${name}: ${value}`)].join('\r\n');
    socket.write(`${head}\r\n\r\n${body}`);
    const answer = text(socket);
    answer.catch(() => {});
    return { answer };
  }

  test('requests that are not verified take no slot, however slowly they send, and end after bodyTimeoutMs', async () => {
    const { consumer, url } = await booking({ inFlightMax: 1, waitingMax: 0, bodyTimeoutMs: 1_500 });
    const slow = Array.from({ length: 5 }, () => sendSlowly(url));
    const endless = new Request(url, {
      method: 'POST',
      headers: { ...forged() },
      body: new ReadableStream({ start: (controller) => controller.enqueue(Buffer.from('{')) }),
      duplex: 'half',
    } as RequestInit);
    const answer = consumer.handleRequest(endless);
    const id = randomUUID();
    const statuses = [(await fetch(url, signed(id))).status];
    for (const { answer } of slow) expect(await within(answer, { what: 'it is answered' })).toMatch(/^HTTP\/1.1 408 /);
    expect((await within(answer, { what: 'it is answered' })).status).toBe(408);
    statuses.push((await fetch(url, signed(id))).status);
    expect(statuses).toEqual([204, 204]);
  });

  test('of more than readingMax slow requests the oldest ends', async () => {
    const { url } = await booking({ readingMax: 2, bodyTimeoutMs: 600_000 });
    const slow = [sendSlowly(url)];
    let first: string | undefined;
    void slow[0]?.answer.then((answer) => {
      first = answer;
    });
    for (let n = 0; first === undefined && n < 100; n++) {
      if (slow.length < 3) slow.push(sendSlowly(url));
      expect((await fetch(url, signed(randomUUID()))).status).toBe(204);
    }
    expect(first).toMatch(/^HTTP\/1.1 408 /);
  });

  test('refuses a request without signature headers, or with an old timestamp, before its body is read', async () => {
    const { url } = await booking({ bodyTimeoutMs: 600_000 });
    const old = { ...forged(), 'webhook-timestamp': String(Math.floor(Date.now() / 1_000) - 600) };
    for (const headers of [{}, { ...forged(), 'webhook-signature': '' }, old]) {
      const { answer } = sendSlowly(url, { headers });
      expect(await within(answer, { what: 'it is refused' })).toMatch(/^HTTP\/1.1 401 /);
    }
  });

  /** A body that arrives in chunks and does not end. `push` resolves when the consumer has taken the chunk. */
  function slowBody(consumer: WebhookConsumer) {
    let wanted = deferred();
    let controller!: ReadableStreamDefaultController<Uint8Array>;
    const body = new ReadableStream<Uint8Array>(
      {
        start: (given) => {
          controller = given;
        },
        pull: () => wanted.resolve(),
      },
      { highWaterMark: 0 },
    );
    const init = { method: 'POST', headers: { ...forged() }, body, duplex: 'half' };
    let status: number | undefined;
    const answer = consumer.handleRequest(new Request('http://x/', init as RequestInit)).then((response) => {
      status = response.status;
    });
    const push = async (bytes: number) => {
      await within(wanted.promise, { what: 'the body is read' });
      wanted = deferred();
      controller.enqueue(new Uint8Array(bytes));
      await within(Promise.race([wanted.promise, answer]), { what: 'the chunk is taken' });
    };
    return { push, status: () => status };
  }

  test('the bodies being read hold readingBytesMax bytes together: over it the oldest end', async () => {
    const { consumer, url } = await booking({
      bodyBytesMax: 1_000,
      readingBytesMax: 2_500,
      bodyTimeoutMs: 600_000,
    });
    const slow = Array.from({ length: 4 }, () => slowBody(consumer));
    const statuses = () => slow.map(({ status }) => status());
    for (const { push } of slow.slice(0, 2)) await push(1_000);
    await slow[2]?.push(500);
    expect(statuses()).toEqual([undefined, undefined, undefined, undefined]);
    await slow[3]?.push(600);
    await until(() => statuses()[0] === 408, { what: 'the oldest is aborted' });
    await slow[2]?.push(500);
    await until(() => statuses()[1] === 408, { what: 'the next oldest is aborted' });
    expect(statuses()).toEqual([408, 408, undefined, undefined]);
    // What the aborted ones held is free again.
    expect((await fetch(url, signed(randomUUID()))).status).toBe(204);
    expect(statuses()).toEqual([408, 408, undefined, undefined]);
  });

  test('readingBytesMax is at least bodyBytesMax', () => {
    const make = (limits: object) => () => consumeWebhook({ secret, logger: silent, handle() {}, ...limits });
    expect(make({ bodyBytesMax: 1_000, readingBytesMax: 999 })).toThrow(
      'readingBytesMax must be a whole number from 1000 to',
    );
    expect(make({ bodyBytesMax: 1_000, readingBytesMax: 1_000 })).not.toThrow();
    expect(make({ bodyBytesMax: 100_000_000 })).not.toThrow();
  });

  test('stop finishes requests in flight and answers new ones with 503', async () => {
    const [started, finish] = [deferred(), deferred()];
    const { consumer, url } = await booking({}, async () => {
      started.resolve();
      await finish.promise;
    });
    const id = randomUUID();
    const first = fetch(url, signed(id));
    await within(started.promise, { what: 'it is in flight' });
    const stopped = consumer.stop();
    await until(() => consumer.stats().state === 'stopping', { what: 'it is stopping' });
    expect((await fetch(url, signed(randomUUID()))).status).toBe(503);
    finish.resolve();
    expect((await first).status).toBe(204);
    await stopped;
    expect(await effectsOf(id)).toBe(1);
  });

  test('a body that a parser has read is an error of the server, and one that a parser has kept is read', async () => {
    const { consumer } = await booking();
    const server = createServer(async (request, response) => {
      let text = '';
      for await (const chunk of request) text += chunk;
      if (request.url === '/kept') Object.assign(request, { rawBody: Buffer.from(text) });
      else Object.assign(request, { body: JSON.parse(text) });
      await consumer.handleNode(request, response);
    });
    await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
    onTestFinished(() => void server.close());
    const url = `http://127.0.0.1:${(server.address() as { port: number }).port}`;
    expect((await fetch(`${url}/parsed`, signed(randomUUID()))).status).toBe(500);
    expect((await fetch(`${url}/kept`, signed(randomUUID()))).status).toBe(204);
  });

  test('goes on when its logger throws', async () => {
    const failing = () => {
      throw new Error('the worker has exited');
    };
    const logger = { debug: failing, info: failing, warn: failing, error: failing };
    const written = vi.spyOn(console, 'error').mockImplementation(() => {});
    onTestFinished(() => written.mockRestore());
    const { consumer, url } = await booking({ logger, retry: { delaysMs: [] } }, () => {
      throw new Reject('no');
    });
    const deadLettered: string[] = [];
    consumer.on('deadLettered', ({ eventId }) => void deadLettered.push(String(eventId)));
    const id = randomUUID();
    await fetch(url, signed(id));
    expect(deadLettered).toEqual([id]);
    expect(written).toHaveBeenCalledOnce();
  });

  test('gets what our own publisher sends, in each wire format', async () => {
    const outbox = createOutbox({ db: fromPg(db.pool) });
    let calls = 0;
    const { consumer, url } = await booking({}, () => {
      if (++calls === 1) throw new Error('not yet');
    });
    const relay = createRelay({
      connectionString: db.url,
      pollIntervalMs: 20,
      logger: silent,
      retry: { delaysMs: [1] },
      destinations: {
        envelope: { publisher: webhook({ url, secret }) },
        raw: { publisher: webhook({ url, secret }), serializer: raw() },
      },
      route: (event) => ({ to: (event.payload as { n: number }).n % 2 === 0 ? 'envelope' : 'raw', topic: 'x' }),
    });
    onTestFinished(() => relay.stop());
    await relay.start();
    const ids = await outbox.transaction(async (_tx, emit) =>
      emit([0, 1, 2, 3].map((n) => ({ type: 'order.created', aggregate: ['order', 'ü 7'] as const, payload: { n } }))),
    );
    await until(() => consumer.stats().processed === 4, { what: 'all are processed', timeoutMs: 20_000 });
    const rows = await db.query('select event_id, n from effects where event_id = any($1) order by n', [ids]);
    expect(rows).toEqual(ids.map((event_id, n) => ({ event_id, n })));
    expect(consumer.stats()).toMatchObject({ failed: 1, deadLettered: 0 });
  });
});
