import { describe, expect, it } from 'vitest';
import { type WebhookOptions, webhook } from '../../src/publishers/webhook.ts';

describe('options', () => {
  it.each<[object, string]>([
    [{ url: 'localhost:80' }, 'url must be an absolute http or https URL'],
    [{ url: 'ftp://x/' }, 'url must be an absolute'],
    [{ url: 'http://x/\r\n' }, 'url must be an absolute'],
    [{ healthUrl: '/health' }, 'healthUrl must be'],
    [{ secret: undefined }, 'secret is missing. Pass null'],
    [{ secret: '' }, 'secret is empty. Is its environment variable set?'],
    [{ secret: 'short' }, 'secret must be base64, with or without whsec_ in front'],
    [{ secret: 'hunter2' }, 'secret has 5 bytes when decoded. It must be whsec_ and base64 of 24 to 64 random bytes'],
    [{ headers: { 'x-a': '\n' } }, 'headers: The value'],
    [{ headers: { host: 'x' } }, 'headers: The header "host" belongs to the connection'],
    [{ headers: { 'x-a': '1', 'X-A': '2' } }, 'headers has a name twice'],
    [{ headers: { 'Content-Type': 'text/plain' } }, 'headers has content-type'],
    [{ tls: { ca: 5 } }, 'tls: '],
    [{ tls: { cert: 'no certificate' } }, 'tls: '],
    [{ timeoutMs: 0 }, 'timeoutMs must be a whole number from 1 to 600000'],
    [{ perHostMax: 1.5 }, 'perHostMax must be'],
    [{ inFlightMax: '5' }, 'inFlightMax must be'],
    [{ redirectsMax: 11 }, 'redirectsMax must be'],
    [{ allowPrivateAddresses: 'yes' }, 'allowPrivateAddresses must be true or false'],
    [{ onConnectionError: 'delivered' }, 'onConnectionError must be one of'],
    [{ outcomeOf: 'delivered' }, 'outcomeOf must be a function'],
    [{ timeout: 5 }, 'There is no option timeout. Did you mean timeoutMs? Valid options: url, secret'],
  ])('%j is refused at once', (options, words) => {
    const create = () => webhook({ secret: null, ...options } as WebhookOptions);
    expect(create).toThrow(expect.objectContaining({ code: 'POSTCOMMIT_E_BAD_OPTION' }));
    expect(create).toThrow(words);
  });

  it('accepts nothing but an object', () => {
    expect(() => webhook(undefined as unknown as WebhookOptions)).toThrow(/takes an object of options/);
  });
});
