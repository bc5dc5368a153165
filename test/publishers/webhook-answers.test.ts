import { describe, expect, it } from 'vitest';
import type { PublishOutcome } from '../../src/publishers/publisher.ts';
import type { WebhookResponse } from '../../src/publishers/webhook.ts';
import { testMessage } from '../../src/testing/index.ts';
import { within } from '../support/wait.ts';
import { Receiver } from './webhook-receiver.ts';
import { open, publishOne, rawServer } from './webhook-scene.ts';

describe('an answer', () => {
  async function outcomeFor(status: number, headers: Record<string, string> = {}, body = '', options = {}) {
    const receiver = await Receiver.forTest();
    receiver.answer = (_, response) => response.writeHead(status, headers).end(body);
    return publishOne(open({ url: receiver.url(), ...options }));
  }

  it.each<[number, PublishOutcome['kind']]>([
    [200, 'delivered'],
    [201, 'delivered'],
    [202, 'delivered'],
    [204, 'delivered'],
    [299, 'delivered'],
    [300, 'failed'],
    [301, 'failed'],
    [304, 'failed'],
    [400, 'rejected'],
    [401, 'failed'],
    [403, 'failed'],
    [404, 'failed'],
    [408, 'failed'],
    [409, 'rejected'],
    [410, 'rejected'],
    [413, 'rejected'],
    [422, 'rejected'],
    [425, 'failed'],
    [429, 'failed'],
    [500, 'failed'],
    [502, 'failed'],
    [503, 'failed'],
    [599, 'failed'],
  ])('%i is %s', async (status, kind) => {
    const outcome = await outcomeFor(status);
    expect(outcome.kind).toBe(kind);
    if (outcome.kind !== 'delivered') expect(outcome.reason).toContain(`answered ${status}`);
  });

  it('410 says that the receiver wants no more', async () => {
    expect(await outcomeFor(410, {}, 'bye')).toMatchObject({
      reason: expect.stringContaining('wants no more of these: bye'),
    });
  });

  it('is quoted in the reason: one line, no control characters, not too long', async () => {
    const body = `<h1>\u001b[31mno\u0000</h1>\r\n\t stock\u202e ${'é'.repeat(5_000)}`;
    const outcome = await outcomeFor(400, {}, body);
    const { reason } = outcome as { reason: string };
    expect(reason).toMatch(/^127\.0\.0\.1:\d+ answered 400: <h1> \[31mno <\/h1> stock é+…$/);
    expect(reason.length).toBeLessThanOrEqual(500);
  });

  it.each([
    ['7', 7_000],
    ['0', undefined],
    ['999999999', 999_999_999_000],
    ['soon', undefined],
    ['-5', undefined],
    ['1.5', undefined],
    ['', undefined],
  ])('with Retry-After: %s is tried again after %s ms', async (value, ms) => {
    for (const status of [429, 503]) {
      const outcome = await outcomeFor(status, { 'retry-after': value });
      expect(outcome.kind).toBe('failed');
      expect((outcome as { retryAfterMs?: number }).retryAfterMs).toBe(ms);
    }
  });

  it('with Retry-After as a date counts from the clock of the receiver', async () => {
    const date = 'Sun, 06 Nov 1994 08:49:37 GMT';
    const waitFor = async (value: string, own: string) =>
      ((await outcomeFor(503, { 'retry-after': value, date: own })) as { retryAfterMs?: number }).retryAfterMs;
    expect(await waitFor('Sun, 06 Nov 1994 08:51:37 GMT', date)).toBe(120_000);
    expect(await waitFor('Sunday, 06-Nov-94 08:51:37 GMT', date)).toBe(120_000);
    expect(await waitFor('Sun Nov  6 08:51:37 1994', date)).toBe(120_000);
    expect(await waitFor('Sun, 06 Nov 1994 08:40:00 GMT', date)).toBeUndefined();
    expect(await waitFor('Mon, 07 Nov 1994 08:49:37 GMT', date)).toBe(86_400_000);
    const soon = new Date(Date.now() + 60_000).toUTCString();
    const counted = await waitFor(soon, 'nonsense');
    expect(counted).toBeGreaterThan(50_000);
    expect(counted).toBeLessThanOrEqual(60_000);
  });

  it('means what outcomeOf says, where it says something', async () => {
    const seen: WebhookResponse[] = [];
    const outcomeOf = (response: WebhookResponse) => {
      seen.push(response);
      if (response.status === 503) return 'unavailable' as const;
      if (response.body.includes('"ok":false')) return 'rejected' as const;
      return response.status === 409 ? ('delivered' as const) : undefined;
    };
    expect(await outcomeFor(503, { 'retry-after': '3' }, '', { outcomeOf })).toMatchObject({
      kind: 'unavailable',
      retryAfterMs: 3_000,
    });
    expect(await outcomeFor(200, {}, '{"ok":false}', { outcomeOf })).toMatchObject({ kind: 'rejected' });
    expect(await outcomeFor(409, {}, '', { outcomeOf })).toEqual({ kind: 'delivered' });
    expect(await outcomeFor(422, {}, '', { outcomeOf })).toMatchObject({ kind: 'rejected' });
    expect(seen[0]).toMatchObject({ status: 503, headers: { 'retry-after': '3' }, eventType: 'test.happened' });
  });

  it('whose outcomeOf fails is tried again', async () => {
    const throwing = () => {
      throw new Error('my mistake');
    };
    expect(await outcomeFor(204, {}, '', { outcomeOf: throwing })).toEqual({
      kind: 'failed',
      reason: 'outcomeOf() threw: my mistake',
    });
    expect(await outcomeFor(204, {}, '', { outcomeOf: () => 'fine' })).toMatchObject({ kind: 'failed' });
  });

  it('of a megabyte costs neither time nor memory', async () => {
    const receiver = await Receiver.forTest();
    let written = 0;
    const chunk = Buffer.alloc(16_384, 'x');
    receiver.answer = (_, response) => {
      response.writeHead(500);
      const more = () => {
        while (!response.destroyed && written < 100_000_000) {
          written += chunk.length;
          if (!response.write(chunk)) return response.once('drain', more);
        }
        return response.end();
      };
      more();
    };
    const outcome = await publishOne(open({ url: receiver.url() }));
    expect(outcome).toMatchObject({ kind: 'failed', reason: expect.stringMatching(/answered 500: x+…$/) });
    // What the kernel buffers on its way is not ours to limit.
    expect(written).toBeLessThan(20_000_000);
  });

  it.each([
    [200, 'delivered'],
    [500, 'failed'],
  ])('%i whose body never ends, or drips, is %s without waiting for it', async (status, kind) => {
    const receiver = await Receiver.forTest();
    receiver.answer = ({ path }, response) => {
      response.writeHead(status).write('slow ');
      if (path === '/never') return;
      const drip = setInterval(() => response.write('x'), 100);
      response.once('close', () => clearInterval(drip));
    };
    const publisher = open();
    const calls = ['/never', '/drip'].map((path) => publishOne(publisher, receiver.url(path)));
    const outcomes = await within(Promise.all(calls), { what: 'both are answered', timeoutMs: 5_000 });
    expect(outcomes.map((outcome) => outcome.kind)).toEqual([kind, kind]);
    if (status === 500) expect(outcomes[0]).toMatchObject({ reason: expect.stringContaining('answered 500: slow') });
  });

  it.each([
    [200, 'delivered'],
    [500, 'failed'],
  ])('%i that breaks off in its body is %s all the same', async (status, kind) => {
    const receiver = await Receiver.forTest();
    receiver.answer = (_, response) => {
      response.writeHead(status, { 'content-length': '1000' }).write('half');
      setTimeout(() => response.socket?.resetAndDestroy(), 20);
    };
    expect((await publishOne(open({ url: receiver.url() }))).kind).toBe(kind);
  });

  it('that comes before the request is read whole counts', async () => {
    const url = await rawServer((socket) => {
      socket.once('data', () => {
        socket.end('HTTP/1.1 413 Too Large\r\nconnection: close\r\ncontent-length: 7\r\n\r\ntoo big');
      });
    });
    const message = testMessage({ topic: 'x', body: 'x'.repeat(5_000_000) });
    const [outcome] = await open({ url }).publish([message], AbortSignal.timeout(20_000));
    expect(outcome).toMatchObject({ kind: 'rejected', reason: expect.stringContaining('answered 413: too big') });
  });
});
