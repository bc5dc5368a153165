import type { LookupAddress } from 'node:dns';
import type { LookupFunction } from 'node:net';
import { describe, expect, it, onTestFinished } from 'vitest';
import type { Message, Publisher, PublishOutcome } from '../../src/publishers/publisher.ts';
import { isPublicAddress, publicOnly } from '../../src/publishers/webhook/address.ts';
import { type WebhookOptions, webhook } from '../../src/publishers/webhook.ts';
import { testMessage } from '../../src/testing/index.ts';
import { Receiver } from './webhook-receiver.ts';

function open(options: Partial<WebhookOptions> = {}): Publisher {
  const publisher = webhook({ secret: null, timeoutMs: 5_000, ...options });
  onTestFinished(() => publisher.close());
  return publisher;
}

async function publishOne(publisher: Publisher, topic: string, more: Partial<Message> = {}): Promise<PublishOutcome> {
  const [outcome] = await publisher.publish([testMessage({ topic, ...more })], AbortSignal.timeout(10_000));
  if (outcome === undefined) throw new Error('no outcome');
  return outcome;
}

/** A name server whose answers change from call to call. */
function answering(...answers: string[][]): LookupFunction & { asked: string[] } {
  const asked: string[] = [];
  const lookup: LookupFunction = (hostname, options, callback) => {
    const addresses = answers[Math.min(asked.length, answers.length - 1)] ?? [];
    asked.push(hostname);
    const found: LookupAddress[] = addresses.map((address) => ({ address, family: address.includes(':') ? 6 : 4 }));
    setImmediate(() => {
      if (options.all) callback(null, found);
      else callback(null, found[0]?.address ?? '', found[0]?.family);
    });
  };
  return Object.assign(lookup, { asked });
}

describe('isPublicAddress', () => {
  it.each([
    '0.0.0.0',
    '0.1.2.3',
    '10.0.0.1',
    '10.255.255.255',
    '100.64.0.1',
    '100.127.255.255',
    '127.0.0.1',
    '127.8.8.8',
    '100.100.100.200',
    '168.63.129.16',
    '169.254.169.254',
    '172.16.0.1',
    '172.31.255.255',
    '192.0.0.8',
    '192.0.0.192',
    '192.88.99.1',
    '192.0.2.1',
    '192.168.1.1',
    '198.18.0.1',
    '198.19.255.255',
    '198.51.100.7',
    '203.0.113.7',
    '224.0.0.1',
    '255.255.255.255',
    '::',
    '::1',
    '::7f00:1',
    '::ffff:127.0.0.1',
    '::ffff:a9fe:a9fe',
    '::ffff:10.1.2.3',
    '::ffff:168.63.129.16',
    '64:ff9b::168.63.129.16',
    '64:ff9b::100.100.100.200',
    '::ffff:0:127.0.0.1',
    '64:ff9b::7f00:1',
    '64:ff9b::10.0.0.1',
    '64:ff9b::169.254.169.254',
    '64:ff9b:1::1',
    '100::1',
    'fc00::1',
    'fdff:ffff::1',
    'fd00:ec2::254',
    'fd20:ce::254',
    '5f00::1',
    'fe80::1',
    'fe80::1%eth0',
    'febf::1',
    'fec0::1',
    'ff02::1',
    '2001::1',
    '2001:0:4136:e378:8000:63bf:3fff:fdd2',
    '2001:20::1',
    '2001:db8::1',
    '2002:7f00:1::',
    '2002:808:808::1',
    '3fff::1',
    '4000::1',
    'localhost',
    '',
  ])('%s is not', (address) => expect(isPublicAddress(address)).toBe(false));

  it.each([
    '1.1.1.1',
    '9.255.255.255',
    '11.0.0.0',
    '100.63.255.255',
    '100.128.0.0',
    '126.255.255.255',
    '128.0.0.0',
    '168.63.129.15',
    '168.63.129.17',
    '169.253.255.255',
    '169.255.0.0',
    '172.15.255.255',
    '172.32.0.0',
    '192.167.255.255',
    '192.169.0.0',
    '198.17.255.255',
    '198.20.0.0',
    '223.255.255.255',
    '2606:4700:4700::1111',
    '2a00:1450:4001::1',
    '2001:4860:4860::8888',
    '::ffff:8.8.8.8',
    '64:ff9b::8.8.8.8',
  ])('%s is', (address) => expect(isPublicAddress(address)).toBe(true));
});

describe('publicOnly', () => {
  function resolve(lookup: LookupFunction, all: boolean): Promise<unknown> {
    return new Promise((resolve) => {
      publicOnly(lookup)('hooks.example.com', { all }, (error, address, family) => resolve({ error, address, family }));
    });
  }

  it('leaves the public ones of the addresses of a name', async () => {
    const lookup = answering(['127.0.0.1', '8.8.8.8', '::1', '2606:4700::1']);
    const address = [
      { address: '8.8.8.8', family: 4 },
      { address: '2606:4700::1', family: 6 },
    ];
    expect(await resolve(lookup, true)).toEqual({ error: null, address });
  });

  it('checks a single address too', async () => {
    expect(await resolve(answering(['8.8.8.8']), false)).toEqual({ error: null, address: '8.8.8.8', family: 4 });
    const refused = { error: expect.objectContaining({ name: 'PrivateAddress' }), address: [] };
    expect(await resolve(answering(['127.0.0.1']), false)).toEqual(refused);
  });

  it('hands on that a name is unknown', async () => {
    const unknown: LookupFunction = (_, __, callback) =>
      callback(Object.assign(new Error(), { code: 'ENOTFOUND' }), []);
    expect(await resolve(unknown, true)).toMatchObject({ error: { code: 'ENOTFOUND' } });
  });
});

describe('a URL from the route', () => {
  it.each([
    'http://127.0.0.1:PORT/',
    'http://localhost:PORT/',
    'http://LOCALHOST:PORT/',
    'http://2130706433:PORT/',
    'http://0x7f.1:PORT/',
    'http://0177.0.0.1:PORT/',
    'http://127.1:PORT/',
    'http://0.0.0.0:PORT/',
    'http://[::ffff:127.0.0.1]:PORT/',
    'http://[::1]:PORT/',
    'http://user:word@127.0.0.1:PORT/',
    'http://169.254.169.254/latest/meta-data/',
    'https://10.0.0.1/',
  ])('does not reach the private address in %s, and the event is given up with the reason', async (url) => {
    const receiver = await Receiver.forTest();
    const outcome = await publishOne(open(), url.replace('PORT', String(receiver.port)));
    expect(outcome).toEqual({ kind: 'rejected', reason: expect.stringContaining('private address') });
    expect(receiver.connections).toBe(0);
  });

  it('may be private where that is allowed', async () => {
    const receiver = await Receiver.forTest();
    const publisher = open({ allowPrivateAddresses: true });
    expect(await publishOne(publisher, receiver.url('/a'))).toEqual({ kind: 'delivered' });
    expect(await publishOne(publisher, receiver.url('/b', 'localhost'))).toEqual({ kind: 'delivered' });
    expect(receiver.requests.map(({ path }) => path)).toEqual(['/a', '/b']);
  });

  it('asks for a name once per connection, so that no second answer can differ from the one that was checked', async () => {
    const receiver = await Receiver.forTest();
    const lookup = answering(['240.0.0.1'], ['127.0.0.1']);
    const outcome = await publishOne(open({ lookup }), `http://hooks.example.com:${receiver.port}/`);
    expect(outcome).toEqual({
      kind: 'rejected',
      reason:
        'Not sent: hooks.example.com resolves to the private address 240.0.0.1, and the URL comes from the route.',
    });
    expect(lookup.asked).toEqual(['hooks.example.com']);
    expect(receiver.connections).toBe(0);
  });

  it('is checked on every new connection: a name that turns private is refused then', async () => {
    const receiver = await Receiver.forTest();
    const lookup = answering(['127.0.0.1']);
    const publisher = open({ lookup, url: `http://internal.example.com:${receiver.port}/own` });
    expect(await publishOne(publisher, 'order.created')).toEqual({ kind: 'delivered' });
    // The connection of the operator's own URL is idle now, and must not be there for the route's.
    const outcome = await publishOne(publisher, `http://internal.example.com:${receiver.port}/admin`);
    expect(outcome).toMatchObject({ kind: 'rejected', reason: expect.stringContaining('private address 127.0.0.1') });
    expect(receiver.requests.map(({ path }) => path)).toEqual(['/own']);
  });
});

describe("the operator's own url", () => {
  it('may be private: an internal service is the usual case', async () => {
    const receiver = await Receiver.forTest();
    const publisher = open({ url: receiver.url('/own', 'localhost') });
    expect(await publishOne(publisher, 'order.created')).toEqual({ kind: 'delivered' });
  });

  it('keeps its headers and certificates to itself when the route names another URL', async () => {
    const own = await Receiver.forTest();
    const customer = await Receiver.forTest();
    const publisher = open({
      url: own.url('/'),
      headers: { authorization: 'Bearer internal' },
      allowPrivateAddresses: true,
    });
    await publishOne(publisher, 'order.created');
    await publishOne(publisher, customer.url('/'));
    expect(own.requests[0]?.headers.authorization).toBe('Bearer internal');
    expect(customer.requests[0]?.headers.authorization).toBeUndefined();
  });
});

describe('redirects', () => {
  function redirecting(receiver: Receiver, to: string, status = 307): void {
    receiver.answer = ({ path }, response) =>
      path === '/from' ? response.writeHead(status, { location: to }).end() : response.writeHead(204).end();
  }

  it('are not followed unless asked for: the event is tried again, with the reason', async () => {
    const receiver = await Receiver.forTest();
    redirecting(receiver, '/to');
    const outcome = await publishOne(open({ url: receiver.url('/from') }), 'x');
    expect(outcome).toEqual({
      kind: 'failed',
      reason: `127.0.0.1:${receiver.port} answered 307, a redirect to another URL of the same host, which is not followed. Correct the URL`,
    });
    expect(receiver.requests.map(({ path }) => path)).toEqual(['/from']);
  });

  it.each([
    ['/services/T0/SECRET/?key=SECRET', 'another URL of the same host'],
    ['https://user:SECRET@hooks.example.com/services/SECRET', 'https://hooks.example.com'],
    ['//hooks.example.com:8080/services/SECRET', 'hooks.example.com:8080'],
    ['http://[SECRET', 'an invalid URL'],
    ['mailto:SECRET', 'an invalid URL'],
  ])('show no path, query or password in the reason: %s', async (to, shown) => {
    const receiver = await Receiver.forTest();
    receiver.answer = (_request, response) =>
      response.writeHead(308, { location: to }).end(`<a href="${to}">Permanent Redirect</a>`);
    const outcome = await publishOne(open({ url: receiver.url('/services/T0/SECRET?key=SECRET') }), 'x');
    expect(outcome).toEqual({
      kind: 'failed',
      reason: `127.0.0.1:${receiver.port} answered 308, a redirect to ${shown}, which is not followed. Correct the URL`,
    });
  });

  it.each([307, 308])('of the status %i are followed on the same host, with body and signature', async (status) => {
    const receiver = await Receiver.forTest();
    redirecting(receiver, '/to?x=1', status);
    const secret = Buffer.alloc(32, 1);
    const publisher = open({ url: receiver.url('/from'), redirectsMax: 1, secret });
    expect(await publishOne(publisher, 'x', { body: 'hello' })).toEqual({ kind: 'delivered' });
    const [from, to] = receiver.requests;
    expect(to).toMatchObject({ method: 'POST', path: '/to?x=1', body: Buffer.from('hello') });
    expect(to?.headers['webhook-signature']).toBe(from?.headers['webhook-signature']);
  });

  it.each([301, 302, 303])('of the status %i are not followed: they lose the body', async (status) => {
    const receiver = await Receiver.forTest();
    redirecting(receiver, '/to', status);
    const outcome = await publishOne(open({ url: receiver.url('/from'), redirectsMax: 3 }), 'x');
    expect(outcome).toMatchObject({ kind: 'failed', reason: expect.stringContaining(`answered ${status}`) });
    expect(receiver.requests).toHaveLength(1);
  });

  it('to another host, public or private, are not followed', async () => {
    const receiver = await Receiver.forTest();
    const internal = await Receiver.forTest();
    const publisher = open({ allowPrivateAddresses: true, redirectsMax: 3 });
    for (const to of [
      internal.url('/'),
      `http://localhost:${receiver.port}/`,
      'https://example.com/',
      '//x/',
      'ftp://a/',
    ]) {
      redirecting(receiver, to);
      expect(await publishOne(publisher, receiver.url('/from'))).toMatchObject({ kind: 'failed' });
    }
    expect(internal.connections).toBe(0);
    expect(new Set(receiver.requests.map(({ path }) => path))).toEqual(new Set(['/from']));
  });

  it('from https to http are not followed', async () => {
    const receiver = await Receiver.forTest({ secure: true });
    redirecting(receiver, receiver.url('/to', 'localhost').replace('https', 'http'));
    const tls = { rejectUnauthorized: false };
    const publisher = open({ url: receiver.url('/from', 'localhost'), tls, redirectsMax: 3 });
    expect(await publishOne(publisher, 'x')).toMatchObject({ kind: 'failed' });
    expect(receiver.requests).toHaveLength(1);
  });

  it('in a circle end at the limit', async () => {
    const receiver = await Receiver.forTest();
    redirecting(receiver, '/from');
    const outcome = await publishOne(open({ url: receiver.url('/from'), redirectsMax: 2 }), 'x');
    expect(outcome.kind).toBe('failed');
    expect(receiver.requests).toHaveLength(3);
  });
});
