import { createHmac } from 'node:crypto';
import { describe, expect, it, onTestFinished } from 'vitest';
import type { Message, Publisher, PublishOutcome } from '../../src/publishers/publisher.ts';
import { verifyWebhook, type WebhookOptions, type WebhookTarget, webhook } from '../../src/publishers/webhook.ts';
import { testMessage } from '../../src/testing/index.ts';
import { deferred, until } from '../support/wait.ts';
import { Receiver } from './webhook-receiver.ts';

const key = Buffer.alloc(32, 3);
const secret = `whsec_${key.toString('base64')}`;

function open(options: Partial<WebhookOptions> = {}): Publisher {
  const publisher = webhook({ secret, allowPrivateAddresses: true, ...options });
  onTestFinished(() => publisher.close());
  return publisher;
}

function publish(publisher: Publisher, batch: Message[]): Promise<readonly PublishOutcome[]> {
  return publisher.publish(batch, AbortSignal.timeout(20_000));
}

async function publishOne(publisher: Publisher, given: Parameters<typeof testMessage>[0]): Promise<PublishOutcome> {
  const [outcome] = await publish(publisher, [testMessage(given)]);
  if (outcome === undefined) throw new Error('no outcome');
  return outcome;
}

describe('a request', () => {
  it('is a POST with the body, its type, the headers and a signature of the moment of sending', async () => {
    const receiver = await Receiver.forTest();
    const publisher = open({ url: receiver.url('/events?source=shop'), headers: { authorization: 'Bearer x' } });
    const message = testMessage({
      topic: 'order.created',
      body: '{"text":"Grüße"}',
      contentType: 'application/cloudevents+json; charset=utf-8',
      headers: { 'X-Team': 'a b', traceparent: '00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01' },
      occurredAtMs: Date.now() - 86_400_000,
    });
    expect(await publish(publisher, [message])).toEqual([{ kind: 'delivered' }]);
    const [received] = receiver.requests;
    expect(received).toMatchObject({ method: 'POST', path: '/events?source=shop' });
    expect(received?.body.toString()).toBe('{"text":"Grüße"}');
    expect(received?.headers).toMatchObject({
      'content-type': 'application/cloudevents+json; charset=utf-8',
      'content-length': String(Buffer.byteLength('{"text":"Grüße"}')),
      authorization: 'Bearer x',
      'x-team': 'a b',
      traceparent: '00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01',
      'user-agent': 'postcommit',
      'webhook-id': message.eventId,
    });
    const timestamp = String(received?.headers['webhook-timestamp']);
    expect(Math.abs(Number(timestamp) - Date.now() / 1_000)).toBeLessThan(10);
    const expected = createHmac('sha256', key)
      .update(`${message.eventId}.${timestamp}.{"text":"Grüße"}`)
      .digest('base64');
    expect(received?.headers['webhook-signature']).toBe(`v1,${expected}`);
  });

  it('passes verifyWebhook at the receiver, with either secret of a rotation', async () => {
    const receiver = await Receiver.forTest();
    const newer = `whsec_${Buffer.alloc(32, 4).toString('base64')}`;
    const eventId = '0199a6f0-0000-7000-8000-000000000009';
    await publishOne(open({ url: receiver.url(), secret: [newer, secret] }), { topic: 'x', eventId, body: 'hello' });
    const { headers, body } = receiver.requests[0] ?? { headers: {}, body: '' };
    expect(verifyWebhook({ headers, body, secret }).eventId).toBe(eventId);
    expect(verifyWebhook({ headers, body, secret: newer }).eventId).toBe(eventId);
  });

  it('is unsigned only when asked for, and has its id even then', async () => {
    const receiver = await Receiver.forTest();
    await publishOne(open({ url: receiver.url(), secret: null }), { topic: 'x', eventId: 'abc' });
    const { headers } = receiver.requests[0] ?? {};
    expect(headers?.['webhook-id']).toBe('abc');
    expect(headers).not.toHaveProperty('webhook-signature');
  });

  it('is signed with the secret of its receiver where a function chooses', async () => {
    const receiver = await Receiver.forTest();
    const asked: WebhookTarget[] = [];
    const choose = async (target: WebhookTarget) => {
      asked.push(target);
      return target.url.endsWith('/a') ? secret : Buffer.from('raw');
    };
    const publisher = open({ secret: choose });
    for (const path of ['/a', '/b']) await publishOne(publisher, { topic: receiver.url(path), body: '1' });
    expect(asked.map(({ url }) => url)).toEqual([receiver.url('/a'), receiver.url('/b')]);
    const [a, b] = receiver.requests;
    expect(() => verifyWebhook({ headers: a?.headers ?? {}, body: '1', secret })).not.toThrow();
    expect(() => verifyWebhook({ headers: b?.headers ?? {}, body: '1', secret: Buffer.from('raw') })).not.toThrow();
  });

  it('is not sent when the secret cannot be had, and no reason repeats a secret', async () => {
    const receiver = await Receiver.forTest();
    const faults: WebhookOptions['secret'][] = [
      () => Promise.reject(new Error('vault is sealed')),
      () => 'my password!',
      () => undefined as unknown as null,
      () => new Promise(() => {}),
    ];
    for (const fault of faults) {
      const outcome = await publishOne(open({ url: receiver.url(), secret: fault, timeoutMs: 50 }), { topic: 'x' });
      expect(outcome).toEqual({
        kind: 'failed',
        reason: expect.stringMatching(/^Not sent: the secret could not be had\. ./),
      });
      expect(JSON.stringify(outcome)).not.toContain('my password');
    }
    expect(receiver.requests).toHaveLength(0);
  });
});

describe('the URL', () => {
  it("is the route's when the topic is one, otherwise the destination's", async () => {
    const receiver = await Receiver.forTest();
    const publisher = open({ url: receiver.url('/own') });
    for (const topic of ['order.created', receiver.url('/customer'), 'ftp://x', 'https-less']) {
      expect(await publishOne(publisher, { topic })).toEqual({ kind: 'delivered' });
    }
    expect(receiver.requests.map(({ path }) => path)).toEqual(['/own', '/customer', '/own', '/own']);
  });

  it.each([
    ['order.created', 'is none, and the destination has no url'],
    ['ftp://example.com/', 'is none, and the destination has no url'],
    ['http://', 'not a valid URL'],
    ['https://user:password@exa mple.com/', '"https://…@exa mple.com/" is not a valid URL'],
    ['http:/x', 'not a valid URL'],
    ['https://exa mple.com/', 'not a valid URL'],
    ['http://127.0.0.1:99999/', 'not a valid URL'],
    ['http://127.0.0.1:1/a\r\nx-injected: 1', 'not a valid URL'],
    ['http://127.0.0.1:1/a\tb', 'not a valid URL'],
    [undefined as unknown as string, 'is none, and the destination has no url'],
  ])('%j is given up with a reason', async (topic, words) => {
    const outcome = await publishOne(open(), { topic });
    expect(outcome).toEqual({ kind: 'rejected', reason: expect.stringContaining(words) });
    expect(outcome.kind === 'rejected' && outcome.reason).not.toMatch(/[\r\n]|password/);
  });
});

describe('headers', () => {
  it.each<[string, unknown, string]>([
    ['x-a', 'one\r\nx-injected: 1', 'characters not allowed'],
    ['x-a', 'one\nx-injected: 1', 'characters not allowed'],
    ['x-a', 'zero\0', 'characters not allowed'],
    ['x-a', '\ud800', 'characters not allowed'],
    ['x-a\r\nx-injected', '1', 'name "x-a\\r\\nx-injected" is not allowed'],
    ['x a', '1', 'not allowed'],
    ['', '1', 'not allowed'],
    ['x:a', '1', 'not allowed'],
    ['größe', '1', 'not allowed'],
    ['x-number', 1, 'not a text but number'],
    ['x-null', null, 'not a text but null'],
    ['x-list', ['a'], 'not a text but a list'],
    ['Content-Length', '3', 'belongs to the connection'],
    ['transfer-encoding', 'chunked', 'belongs to the connection'],
    ['Host', 'internal', 'belongs to the connection'],
    ['connection', 'upgrade', 'belongs to the connection'],
    ['Webhook-Signature', 'v1,forged', 'set by the webhook publisher itself'],
    ['content-type', 'text/plain', 'contradicts the serializer'],
  ])('%j: %j are given up, never left out', async (name, value, words) => {
    const receiver = await Receiver.forTest();
    const headers = { [name]: value } as Record<string, string>;
    const outcome = await publishOne(open({ url: receiver.url() }), { topic: 'x', headers });
    expect(outcome).toEqual({ kind: 'rejected', reason: expect.stringContaining(words) });
    expect(receiver.requests).toHaveLength(0);
  });

  it('whose names differ only in case are one, the last of them', async () => {
    const receiver = await Receiver.forTest();
    const headers = { 'x-a': '1', 'X-A': '2', 'X-Key': 'event' };
    const publisher = open({ url: receiver.url(), headers: { 'x-key': 'option' } });
    expect(await publishOne(publisher, { topic: 'x', headers })).toEqual({ kind: 'delivered' });
    expect(receiver.requests[0]?.headers).toMatchObject({ 'x-a': '2', 'x-key': 'option' });
  });

  it('an illegal content type, event id and body are given up too', async () => {
    const receiver = await Receiver.forTest();
    const publisher = open({ url: receiver.url() });
    const bad: [Partial<Message>, string][] = [
      [{ contentType: 'text/plain\r\nx: 1' }, 'content-type'],
      [{ contentType: 5 as unknown as string }, 'content type is not a text'],
      [{ eventId: 'a\nb' }, 'webhook-id'],
      [{ body: { a: 1 } as unknown as string }, 'neither a text nor bytes'],
    ];
    for (const [given, words] of bad) {
      const message = { ...testMessage({ topic: 'x' }), ...given };
      expect(await publish(publisher, [message])).toEqual([
        { kind: 'rejected', reason: expect.stringContaining(words) },
      ]);
    }
    expect(receiver.requests).toHaveLength(0);
  });

  it('beyond ASCII arrive as percent-encoded UTF-8, and others as they are', async () => {
    const receiver = await Receiver.forTest();
    const headers = JSON.parse('{"x-a":"100 % ü 🧾","x-b":"100 %20","x-c":"","__proto__":"p"}');
    expect(await publishOne(open({ url: receiver.url() }), { topic: 'x', headers })).toEqual({ kind: 'delivered' });
    const received = receiver.requests[0]?.headers ?? {};
    expect(received['x-a']).toBe('100 %25 %C3%BC %F0%9F%A7%BE');
    expect(decodeURIComponent(String(received['x-a']))).toBe('100 % ü 🧾');
    expect(received).toMatchObject({ 'x-b': '100 %20', 'x-c': '' });
    expect(receiver.requests[0]?.rawHeaders).toContain('__proto__');
  });

  it('of a user in the URL become Basic authentication', async () => {
    const receiver = await Receiver.forTest();
    await publishOne(open({ url: receiver.url().replace('//', '//me:p%40ss@') }), { topic: 'x' });
    const expected = `Basic ${Buffer.from('me:p@ss').toString('base64')}`;
    expect(receiver.requests[0]?.headers.authorization).toBe(expected);
  });

  it("of the destination win over the event's", async () => {
    const receiver = await Receiver.forTest();
    const publisher = open({ url: receiver.url(), headers: { Authorization: 'Bearer own', 'user-agent': 'shop' } });
    await publishOne(publisher, { topic: 'x', headers: { authorization: 'Bearer forged' } });
    expect(receiver.requests[0]?.headers).toMatchObject({ authorization: 'Bearer own', 'user-agent': 'shop' });
  });
});

describe('order and limits', () => {
  it('sends events of a key one after the other, and none behind one that failed', async () => {
    const receiver = await Receiver.forTest();
    receiver.answer = ({ body }, response) => response.writeHead(body.toString() === 'a2' ? 500 : 204).end();
    const batch = ['a1', 'b1', 'a2', 'a3', 'b2', 'a4'].map((body) =>
      testMessage({ topic: 'x', body, key: body[0] ?? '' }),
    );
    const outcomes = await publish(open({ url: receiver.url() }), batch);
    expect(outcomes.map(({ kind }) => kind)).toEqual([
      'delivered',
      'delivered',
      'failed',
      'released',
      'delivered',
      'released',
    ]);
    const ofKey = (name: string) => receiver.bodies().filter((body) => body.startsWith(name));
    expect(ofKey('a')).toEqual(['a1', 'a2']);
    expect(ofKey('b')).toEqual(['b1', 'b2']);
  });

  it('keeps to perHostMax requests per host, over all calls, and does not let one host wait for another', async () => {
    const slow = await Receiver.forTest();
    const quick = await Receiver.forTest();
    const gate = deferred();
    slow.answer = async (_, response) => {
      await gate.promise;
      response.writeHead(204).end();
    };
    const publisher = open({ perHostMax: 3 });
    const calls = Array.from({ length: 12 }, () => publishOne(publisher, { topic: slow.url('/') }));
    await until(() => slow.requests.length === 3, { what: 'the first three are there' });
    expect(await publishOne(publisher, { topic: quick.url('/') })).toEqual({ kind: 'delivered' });
    expect(slow.requests).toHaveLength(3);
    gate.resolve();
    expect(await Promise.all(calls)).toEqual(Array(12).fill({ kind: 'delivered' }));
    expect(slow.atOnceMost).toBe(3);
    expect(slow.requests).toHaveLength(12);
  });

  it('waits for a busy host no longer than for an answer', async () => {
    const receiver = await Receiver.forTest();
    receiver.freeze();
    const publisher = open({ url: receiver.url(), perHostMax: 1, inFlightMax: 2, timeoutMs: 300 });
    const [first, second] = await Promise.all([
      publishOne(publisher, { topic: 'x' }),
      publishOne(publisher, { topic: 'x' }),
    ]);
    expect(first.kind).toBe('unavailable');
    expect(['failed', 'unavailable']).toContain(second.kind);
    receiver.thaw();
    // The slots are free again.
    const more = await Promise.all([1, 2, 3].map(() => publishOne(publisher, { topic: 'x' })));
    expect(more).toEqual(Array(3).fill({ kind: 'delivered' }));
  });

  it('uses connections again', async () => {
    const receiver = await Receiver.forTest();
    const publisher = open({ url: receiver.url() });
    for (let n = 0; n < 20; n++) expect(await publishOne(publisher, { topic: 'x' })).toEqual({ kind: 'delivered' });
    expect(receiver.connections).toBe(1);
  });

  it('declares one event per call and as many calls as may be under way', () => {
    expect(open({ url: 'http://localhost/' }).capabilities).toMatchObject({ batchSizeMax: 1, batchesInFlightMax: 10 });
    expect(open().capabilities).toMatchObject({ batchesInFlightMax: 200, keyRuns: false, ordered: true });
  });

  it('does not warn of a leak when many requests share a signal', async () => {
    const receiver = await Receiver.forTest();
    const warnings: Error[] = [];
    const listen = (warning: Error) => warnings.push(warning);
    process.on('warning', listen);
    onTestFinished(() => void process.off('warning', listen));
    const batch = Array.from({ length: 50 }, () => testMessage({ topic: 'x' }));
    await publish(open({ url: receiver.url(), inFlightMax: 50, perHostMax: 5 }), batch);
    await new Promise(setImmediate);
    expect(warnings).toEqual([]);
  });
});

describe('request smuggling', () => {
  it('is not possible through a body: its length is always announced', async () => {
    const receiver = await Receiver.forTest();
    const body = 'x\r\n\r\nPOST /smuggled HTTP/1.1\r\nhost: a\r\ncontent-length: 0\r\n\r\n';
    await publishOne(open({ url: receiver.url('/a') }), { topic: 'x', body });
    await publishOne(open({ url: receiver.url('/a') }), { topic: 'x', body: '' });
    expect(receiver.requests.map(({ path }) => path)).toEqual(['/a', '/a']);
    expect(receiver.bodies()).toEqual([body, '']);
  });
});
