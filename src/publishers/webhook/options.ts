import { lookup as dnsLookup } from 'node:dns';
import type { LookupFunction } from 'node:net';
import { createSecureContext } from 'node:tls';
import type { PostcommitError } from '../../errors.ts';
import { shown } from '../../format.ts';
import { readSecrets, type WebhookSecrets } from '../../wire/webhook-signature.ts';
import { readOptions } from '../publisher-options.ts';
import type { WebhookTlsOptions } from './connections.ts';
import { checkedHeaders } from './headers.ts';
import { clean, type WebhookOutcomeKind, type WebhookResponse } from './outcome.ts';

/** Where an event goes, for `secret` as a function. */
export interface WebhookTarget {
  /**
   * The URL as the route's topic or the option `url` has it, character by character: what was stored is found again. The
   * request goes to its normal form (`https://example.com` becomes `https://example.com/`).
   */
  readonly url: string;
  /** What the route says; the event's type where it says nothing. */
  readonly topic: string;
  readonly eventId: string;
  readonly eventType: string;
}

export interface WebhookOptions {
  /** Where events go whose route names no URL. Without it every route must: `topic: 'https://…'`. */
  url?: string;
  /**
   * What requests are signed with, after Standard Webhooks: `whsec_` and base64 of 24 to 64 bytes, or raw bytes. A list
   * signs with each, while one secret replaces another. A function chooses by receiver: customers must not share a
   * secret. `null` sends without a signature.
   */
  secret: WebhookSecrets | null | ((target: WebhookTarget) => WebhookSecrets | null | Promise<WebhookSecrets | null>);
  /**
   * Added to every request, over headers of the same name from the event and the route. With `url` given they belong to
   * it alone: a URL from the route does not get them.
   */
  headers?: Readonly<Record<string, string>>;
  /** Certificates, passed to `node:tls`: `ca`, `cert`, `key`, … With `url` given they belong to it alone. */
  tls?: WebhookTlsOptions;
  /**
   * A request without an answer in this time has failed; redirects included. Asking `secret`, and waiting for a host that
   * is busy, take at most as long again. `publishTimeoutMs` of the destination must be over twice this. Default 10,000.
   */
  timeoutMs?: number;
  /** Concurrent requests per host and port. Default 10. */
  perHostMax?: number;
  /**
   * Concurrent requests over all hosts. Hosts that take over 250 ms share half of it; if hosts become slow with
   * many requests in flight, there are half as many more for the others. Default: `perHostMax` when `url` is given,
   * otherwise 200.
   */
  inFlightMax?: number;
  /**
   * Lets URLs from the route reach private, loopback and link-local addresses. Off by default, as such URLs are mostly
   * customers'. `url` may be private in any case: it is the operator's. Default `false`.
   */
  allowPrivateAddresses?: boolean;
  /**
   * Redirects followed per request: 307 and 308 alone, as others lose the body, and only on the same host, never from
   * https to http. Default 0.
   */
  redirectsMax?: number;
  /**
   * The outcome when there is no answer: refused, reset, unresolved, untrusted, too slow. `unavailable` stops sending to the
   * destination until it is up again, and no attempt is counted; `failed` counts an attempt of this event only. Default:
   * `unavailable` for `url`, `failed` for URLs from the route, so that the outage of one customer stops no other.
   */
  onConnectionError?: 'failed' | 'unavailable';
  /** Decides what an answer means; `undefined` leaves it to the defaults (2xx delivered; 401, 403, 404, 408, 425, 429, 3xx, 5xx failed; other 4xx rejected). */
  outcomeOf?: (response: WebhookResponse) => WebhookOutcomeKind | undefined;
  /** Health check: requested with GET, must answer 2xx. Default: only a connection to the host of `url` is opened. */
  healthUrl?: string;
  /** Resolves host names, as `lookup` of `node:dns` does, e.g. with a cache. Its answers are checked. */
  lookup?: LookupFunction;
}

export type ResolvedWebhookOptions = ReturnType<typeof resolveWebhookOptions>;

const optionNames = [
  'url',
  'secret',
  'headers',
  'tls',
  'timeoutMs',
  'perHostMax',
  'inFlightMax',
  'allowPrivateAddresses',
  'redirectsMax',
  'onConnectionError',
  'outcomeOf',
  'healthUrl',
  'lookup',
] as const;

export function resolveWebhookOptions(given: WebhookOptions) {
  const { whole, flag, fail } = readOptions('webhook', given, optionNames);
  const url = readUrlOption('url', given.url, fail);
  const perHostMax = whole('perHostMax', 10, 1, 1_000);
  return {
    url,
    /** Exactly as in the option. */
    urlText: given.url ?? '',
    secret: readSecretOption(given.secret, fail),
    headers: readHeaders(given.headers ?? {}, fail),
    tls: readTls(given.tls ?? {}, fail),
    timeoutMs: whole('timeoutMs', 10_000, 1, 600_000),
    perHostMax,
    inFlightMax: whole('inFlightMax', url === undefined ? 200 : perHostMax, 1, 10_000),
    allowPrivateAddresses: flag('allowPrivateAddresses', false),
    redirectsMax: whole('redirectsMax', 0, 0, 10),
    onConnectionError: readOnConnectionError(given.onConnectionError, fail),
    outcomeOf: readFunction('outcomeOf', given.outcomeOf, fail),
    healthUrl: readUrlOption('healthUrl', given.healthUrl, fail),
    lookup: readFunction('lookup', given.lookup, fail) ?? (dnsLookup as LookupFunction),
  };
}

type Fail = (detail: string) => PostcommitError;

/** An http(s) URL without characters that the URL parser would silently drop. Otherwise undefined. */
export function readUrl(text: string): URL | undefined {
  if (!/^https?:\/\//i.test(text) || /[\0-\x20\x7f]/.test(text)) return undefined;
  return URL.canParse(text) ? new URL(text) : undefined;
}

/** The host and port of a topic that is a URL. */
export function hostOfTopic(topic: string): string | undefined {
  return readUrl(topic)?.host;
}

function readUrlOption(name: string, value: unknown, fail: Fail): URL | undefined {
  if (value === undefined) return undefined;
  const url = typeof value === 'string' ? readUrl(value) : undefined;
  if (url === undefined) throw fail(`${name} must be an absolute http or https URL.`);
  return url;
}

/** Ready to sign with: the keys, or a function to ask for the secret. */
function readSecretOption(secret: WebhookOptions['secret'], fail: Fail) {
  if (secret === undefined) throw fail('secret is missing. Pass null to send without a signature.');
  return secret === null || typeof secret === 'function' ? secret : readSecrets(secret);
}

function readHeaders(headers: Readonly<Record<string, string>>, fail: Fail): Record<string, string> {
  if (typeof headers !== 'object' || headers === null) throw fail('headers must be an object of texts.');
  const names = new Set(Object.keys(headers).map((name) => name.toLowerCase()));
  if (names.size < Object.keys(headers).length) throw fail('headers has a name twice, in different case.');
  if (names.has('content-type')) throw fail('headers has content-type, which the serializer decides.');
  try {
    return checkedHeaders(headers);
  } catch (error) {
    throw fail(`headers: ${(error as Error).message}`);
  }
}

function readTls(tls: WebhookTlsOptions, fail: Fail): WebhookTlsOptions {
  if (typeof tls !== 'object' || tls === null) throw fail('tls must be an object of options for node:tls.');
  try {
    createSecureContext(tls);
  } catch (error) {
    throw fail(clean(`tls: ${(error as Error).message}`));
  }
  return tls;
}

function readOnConnectionError(value: WebhookOptions['onConnectionError'], fail: Fail) {
  if (value === undefined || value === 'failed' || value === 'unavailable') return value;
  throw fail(`onConnectionError must be one of failed, unavailable. Got ${shown(value)}.`);
}

function readFunction<T>(name: string, value: T | undefined, fail: Fail): T | undefined {
  if (value === undefined || typeof value === 'function') return value;
  throw fail(`${name} must be a function.`);
}
