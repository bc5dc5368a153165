import { setTimeout as sleep } from 'node:timers/promises';
import { describe, expect, it } from 'vitest';
import type { PublishOutcome } from '../../src/publishers/publisher.ts';
import type { WebhookOptions } from '../../src/publishers/webhook.ts';
import { within } from '../support/wait.ts';
import { testCertificate } from './webhook-certificate.ts';
import { Receiver } from './webhook-receiver.ts';
import { open, publishOne, rawServer } from './webhook-scene.ts';

describe('without an answer', () => {
  /** The operator's own URL is unavailable; a customer's only fails. */
  async function bothOutcomes(url: string, options: Partial<WebhookOptions> = {}): Promise<[string, PublishOutcome][]> {
    const own = await publishOne(open({ url, timeoutMs: 2_000, ...options }));
    const routed = await publishOne(open({ timeoutMs: 2_000, ...options }), url);
    const turned = await publishOne(open({ timeoutMs: 2_000, onConnectionError: 'unavailable', ...options }), url);
    const kept = await publishOne(open({ url, timeoutMs: 2_000, onConnectionError: 'failed', ...options }));
    return [
      ['unavailable', own],
      ['failed', routed],
      ['unavailable', turned],
      ['failed', kept],
    ];
  }

  async function expectFailure(url: string, words: RegExp, options?: Partial<WebhookOptions>): Promise<void> {
    for (const [kind, outcome] of await bothOutcomes(url, options)) {
      expect(outcome).toEqual({ kind, reason: expect.stringMatching(words) });
    }
  }

  it('because no server listens', async () => {
    const receiver = await Receiver.forTest();
    await receiver.stop();
    await expectFailure(receiver.url(), /^127\.0\.0\.1:\d+ refused the connection\.$/);
    await expectFailure(receiver.url('/', 'localhost'), /^localhost:\d+ refused the connection\.$/);
  });

  it('because the name is unknown', async () => {
    await expectFailure(
      'http://hooks.invalid/',
      /^The name hooks\.invalid cannot be resolved \((ENOTFOUND|EAI_AGAIN)\)/,
    );
  });

  it('because the connection is broken before it', async () => {
    const url = await rawServer((socket) => socket.once('data', () => socket.resetAndDestroy()));
    await expectFailure(url, /broke the connection before it answered/);
  });

  it('because the connection is closed before the response, or in the middle of its head', async () => {
    await expectFailure(await rawServer((socket) => socket.once('data', () => socket.end())), /connection|answer/);
    const half = await rawServer((socket) => socket.once('data', () => socket.end('HTTP/1.1 200 OK\r\nx-a')));
    await expectFailure(half, /connection|answer/);
  });

  it('because it does not come in time: nothing, or a head that drips', async () => {
    const silent = await rawServer(() => {});
    await expectFailure(silent, /did not answer\. No answer within 200 ms\.$/, { timeoutMs: 200 });
    const dripping = await rawServer((socket) => {
      socket.write('HTTP/1.1 200 OK\r\nx-a: ');
      const drip = setInterval(() => socket.write('x'), 20);
      socket.once('close', () => clearInterval(drip));
    });
    await expectFailure(dripping, /No answer within 200 ms/, { timeoutMs: 200 });
  });

  it('because what comes is not HTTP, or another protocol, or a head without end', async () => {
    const banner = await rawServer((socket) => socket.write('220 mail.example.com ESMTP\r\n'));
    await expectFailure(banner, /did not answer in HTTP \(HPE_/);
    const upgrade = await rawServer((socket) =>
      socket.once('data', () => socket.write('HTTP/1.1 101 Switching\r\nconnection: upgrade\r\nupgrade: x\r\n\r\n')),
    );
    await expectFailure(upgrade, /closed without an answer/);
    const endless = await rawServer((socket) =>
      socket.once('data', () => socket.write(`HTTP/1.1 200 OK\r\nx-a: ${'x'.repeat(100_000)}`)),
    );
    await expectFailure(endless, /did not answer in HTTP \(HPE_HEADER_OVERFLOW/);
  });

  it('because its certificate is not trusted, is for another name, or there is none', async () => {
    const receiver = await Receiver.forTest({ secure: true });
    await expectFailure(
      receiver.url('/', 'localhost'),
      /certificate of localhost:\d+ is not trusted \(DEPTH_ZERO_SELF/,
    );
    const ca = { ca: testCertificate };
    const own = await publishOne(open({ url: receiver.url('/'), tls: ca }));
    expect(own).toMatchObject({ kind: 'unavailable', reason: expect.stringContaining('ERR_TLS_CERT_ALTNAME_INVALID') });
    expect(await publishOne(open({ url: receiver.url('/', 'localhost'), tls: ca }))).toEqual({ kind: 'delivered' });
    expect(await publishOne(open({ tls: ca }), receiver.url('/', 'localhost'))).toEqual({ kind: 'delivered' });
    // Certificates of `url` say nothing about the URLs of others.
    const routed = await publishOne(
      open({ url: receiver.url('/', 'localhost'), tls: ca }),
      receiver.url('/', 'localhost'),
    );
    expect(routed).toMatchObject({ kind: 'failed', reason: expect.stringContaining('not trusted') });
    const plain = await Receiver.forTest();
    await expectFailure(plain.url().replace('http', 'https'), /failed: .*(SSL|EPROTO)/);
  });

  it('because the relay does not wait for it', async () => {
    const url = await rawServer(() => {});
    const stop = new AbortController();
    const call = publishOne(open({ url }), 'x', stop.signal);
    const routed = publishOne(open(), url, stop.signal);
    setTimeout(() => stop.abort('enough'), 50);
    const outcomes = await within(Promise.all([call, routed]), { what: 'the calls are answered', timeoutMs: 2_000 });
    const outcome = { kind: 'unavailable', reason: 'No answer within the time limit of the relay.' };
    expect(outcomes).toEqual([outcome, outcome]);
  });
});

describe('a receiver that restarts', () => {
  it('is served again at once, over new connections', async () => {
    const receiver = await Receiver.forTest();
    const publisher = open({ url: receiver.url() });
    for (let round = 0; round < 3; round++) {
      expect(await publishOne(publisher)).toEqual({ kind: 'delivered' });
      await receiver.stop();
      expect((await publishOne(publisher)).kind).toBe('unavailable');
      await receiver.start();
    }
    expect(await publishOne(publisher)).toEqual({ kind: 'delivered' });
  });

  it('and closes an idle connection in the moment it is used again costs nothing', async () => {
    let requests = 0;
    // Serves one request per connection and resets it at the second, like a server that closes an idle connection.
    const url = await rawServer((socket) => {
      let first = true;
      socket.on('data', () => {
        if (!first) return socket.resetAndDestroy();
        first = false;
        requests += 1;
        return socket.write('HTTP/1.1 204 No Content\r\n\r\n');
      });
    });
    const publisher = open({ url });
    for (let n = 1; n <= 4; n++) {
      expect(await publishOne(publisher)).toEqual({ kind: 'delivered' });
      expect(requests).toBe(n);
      await sleep(1);
    }
  });
});
