import { createHmac, randomBytes } from 'node:crypto';
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { signWebhook, verifyWebhook } from '../../src/publishers/webhook.ts';

const secret = `whsec_${randomBytes(32).toString('base64')}`;
const other = `whsec_${randomBytes(32).toString('base64')}`;
const eventId = '0199a6f0-0000-7000-8000-000000000001';

/** Computed here from the specification's words: HMAC-SHA256 of id, timestamp and body, joined by full stops. */
function independentSignature(key: Buffer, id: string, timestamp: number, body: string): string {
  return `v1,${createHmac('sha256', key).update(`${id}.${timestamp}.${body}`).digest('base64')}`;
}

function unverified(words: string) {
  return expect.objectContaining({
    code: 'POSTCOMMIT_E_WEBHOOK_UNVERIFIED',
    message: expect.stringContaining(words),
  });
}

function secondsAgo(seconds: number): Date {
  return new Date(Date.now() - seconds * 1_000);
}

describe('signWebhook', () => {
  it('gives the signature that the reference libraries of Standard Webhooks are tested with', () => {
    const headers = signWebhook({
      secret: 'whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw',
      eventId: 'msg_p5jXN8AQM9LWM0D4loKWxJek',
      sentAt: new Date(1_614_265_330_000),
      body: '{"test": 2432232314}',
    });
    expect(headers).toEqual({
      'webhook-id': 'msg_p5jXN8AQM9LWM0D4loKWxJek',
      'webhook-timestamp': '1614265330',
      'webhook-signature': 'v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=',
    });
  });

  it('signs with each of several secrets, separated by a space', () => {
    const sentAt = new Date();
    const timestamp = Math.floor(sentAt.getTime() / 1_000);
    const headers = signWebhook({ secret: [secret, other], eventId, body: 'Grüße', sentAt });
    const expected = [secret, other].map((one) =>
      independentSignature(Buffer.from(one.slice(6), 'base64'), eventId, timestamp, 'Grüße'),
    );
    expect(headers['webhook-signature']).toBe(expected.join(' '));
  });

  it('takes a secret without its prefix, and raw bytes of any length', () => {
    const with_ = signWebhook({ secret, eventId, body: 'x' });
    expect(signWebhook({ secret: secret.slice(6), eventId, body: 'x' })).toEqual(with_);
    expect(signWebhook({ secret: Buffer.from(secret.slice(6), 'base64'), eventId, body: 'x' })).toEqual(with_);
    expect(() => signWebhook({ secret: Buffer.from('old'), eventId, body: 'x' })).not.toThrow();
  });

  it.each([
    ['', 'secret is empty'],
    ['whsec_', '0 bytes'],
    ['whsec_c2hvcnQ=', '5 bytes'],
    [`whsec_${Buffer.alloc(65).toString('base64')}`, '65 bytes'],
    ['a plain password of some length!', 'base64'],
    ['whsk_6Xb/dCcHpPea21PS1N9VY/NZW723CEc77N4rJCubMbfVKIDij2HKpMKkioLlX0dRqSKJp4AJ6p9lMicMFs6Kvg==', 'asymmetric'],
    [[], 'list of 1 to 10'],
    [undefined as unknown as string, 'not undefined'],
  ])('refuses the secret %j and does not repeat it', (bad, words) => {
    const signing = () => signWebhook({ secret: bad, eventId, body: 'x' });
    expect(signing).toThrow(expect.objectContaining({ code: 'POSTCOMMIT_E_BAD_OPTION' }));
    expect(signing).toThrow(words);
    if (typeof bad === 'string' && bad.length > 10) expect(signing).not.toThrow(bad.slice(6));
  });
});

describe('verifyWebhook', () => {
  it('refuses a misspelt option, as signWebhook does', () => {
    const headers = { ...signWebhook({ secret, eventId, body: 'x' }) };
    const typo = { tolerance: 10 };
    expect(() => verifyWebhook({ headers, body: 'x', secret, ...typo })).toThrow(
      expect.objectContaining({
        code: 'POSTCOMMIT_E_BAD_OPTION',
        message: expect.stringContaining('verifyWebhook() has no option tolerance.'),
      }),
    );
    const sent = { sendAt: new Date(0) };
    expect(() => signWebhook({ secret, eventId, body: 'x', ...sent })).toThrow('Did you mean sentAt?');
  });

  it('takes what was signed, as a string or bytes, from any kind of headers', () => {
    const sentAt = secondsAgo(1);
    const signed = signWebhook({ secret, eventId, body: '{"a":"ü"}', sentAt });
    const upper = Object.fromEntries(Object.entries(signed).map(([name, value]) => [name.toUpperCase(), value]));
    for (const headers of [{ ...signed }, upper, new Headers({ ...signed })]) {
      for (const body of ['{"a":"ü"}', Buffer.from('{"a":"ü"}')]) {
        const verified = verifyWebhook({ headers, body, secret });
        expect(verified).toEqual({ eventId, sentAt: new Date(Math.floor(sentAt.getTime() / 1_000) * 1_000) });
      }
    }
  });

  it('takes either secret on either side while one replaces the other', () => {
    const body = 'x';
    const both = { ...signWebhook({ secret: [other, secret], eventId, body }) };
    const old = { ...signWebhook({ secret, eventId, body }) };
    expect(verifyWebhook({ headers: both, body, secret }).eventId).toBe(eventId);
    expect(verifyWebhook({ headers: both, body, secret: other }).eventId).toBe(eventId);
    expect(verifyWebhook({ headers: old, body, secret: [other, secret] }).eventId).toBe(eventId);
    expect(() => verifyWebhook({ headers: old, body, secret: other })).toThrow(unverified('No signature fits'));
  });

  it('ignores signatures of versions that it does not know', () => {
    const body = 'x';
    const signed = signWebhook({ secret, eventId, body });
    const newer = signed['webhook-signature'].replace('v1,', 'v2,');
    const headers = (signature: string) => ({ ...signed, 'webhook-signature': signature });
    expect(() => verifyWebhook({ headers: headers(newer), body, secret })).toThrow(unverified('No signature fits'));
    const withKnown = headers(`v1a,xyz ${newer} ${signed['webhook-signature']}`);
    expect(verifyWebhook({ headers: withKnown, body, secret }).eventId).toBe(eventId);
  });

  it('refuses whatever was changed on the way', () => {
    const body = '{"total":1}';
    const signed = { ...signWebhook({ secret, eventId, body, sentAt: secondsAgo(10) }) };
    const timestamp = Number(signed['webhook-timestamp']);
    const changes: [object, string][] = [
      [{}, '{"total":2}'],
      [{}, `${body} `],
      [{ 'webhook-id': `${eventId}0` }, body],
      [{ 'webhook-timestamp': String(timestamp + 1) }, body],
      [{ 'webhook-signature': signed['webhook-signature'].slice(0, -1) }, body],
      [{ 'webhook-signature': 'v1,' }, body],
    ];
    for (const [change, text] of changes) {
      const headers = { ...signed, ...change };
      expect(() => verifyWebhook({ headers, body: text, secret })).toThrow(unverified('No signature fits'));
    }
  });

  it('refuses what is too old or too far in the future, by five minutes unless told otherwise', () => {
    const check = (seconds: number, toleranceSeconds?: number) => {
      const headers = { ...signWebhook({ secret, eventId, body: 'x', sentAt: secondsAgo(seconds) }) };
      return () =>
        verifyWebhook({ headers, body: 'x', secret, ...(toleranceSeconds !== undefined && { toleranceSeconds }) });
    };
    expect(check(290)).not.toThrow();
    expect(check(-290)).not.toThrow();
    expect(check(302)).toThrow(unverified('s old'));
    expect(check(-302)).toThrow(unverified('in the future'));
    expect(check(302, 600)).not.toThrow();
    expect(check(20, 10)).toThrow(unverified('s old'));
    expect(check(20, Number.NaN)).toThrow(expect.objectContaining({ code: 'POSTCOMMIT_E_BAD_OPTION' }));
  });

  it.each(['webhook-id', 'webhook-timestamp', 'webhook-signature'])('refuses a request without %s', (name) => {
    const signed: Record<string, string | string[] | undefined> = { ...signWebhook({ secret, eventId, body: 'x' }) };
    for (const value of [undefined, '', [String(signed[name]), String(signed[name])]]) {
      expect(() => verifyWebhook({ headers: { ...signed, [name]: value }, body: 'x', secret })).toThrow(
        unverified(`${name} is missing`),
      );
    }
  });

  it.each(['soon', '1e9', '-1', '12.5', '0x10', '9'.repeat(13)])('refuses the timestamp %s', (timestamp) => {
    const headers = { ...signWebhook({ secret, eventId, body: 'x' }), 'webhook-timestamp': timestamp };
    expect(() => verifyWebhook({ headers, body: 'x', secret })).toThrow(unverified('not a number of seconds'));
  });

  it('refuses a body that was parsed already', () => {
    const headers = { ...signWebhook({ secret, eventId, body: '{}' }) };
    expect(() => verifyWebhook({ headers, body: {} as string, secret })).toThrow(/not what a parser made/);
  });

  it('agrees with the specification for any body and secret', () => {
    fc.assert(
      fc.property(
        fc.string({ unit: 'grapheme' }),
        fc.uint8Array({ minLength: 24, maxLength: 64 }),
        fc.uuid(),
        (body, key, id) => {
          const timestamp = Math.floor(Date.now() / 1_000);
          const headers = {
            'webhook-id': id,
            'webhook-timestamp': String(timestamp),
            'webhook-signature': independentSignature(Buffer.from(key), id, timestamp, body),
          };
          const text = `whsec_${Buffer.from(key).toString('base64')}`;
          expect(verifyWebhook({ headers, body, secret: text }).eventId).toBe(id);
        },
      ),
    );
  });
});
