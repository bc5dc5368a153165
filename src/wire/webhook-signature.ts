import { createHmac, timingSafeEqual } from 'node:crypto';
import { PostcommitError } from '../errors.ts';
import { unknownOption } from '../suggest.ts';

/** `whsec_` and base64 of 24 to 64 random bytes, as Standard Webhooks has it (the prefix may be missing), or raw bytes. */
export type WebhookSecret = string | Uint8Array;

/** One secret, or several while one replaces the other. */
export type WebhookSecrets = WebhookSecret | readonly WebhookSecret[];

export interface VerifyWebhookOptions {
  /** The request's headers: those of `node:http`, a `Headers` object or a plain object. */
  headers: Headers | Readonly<Record<string, string | readonly string[] | undefined>>;
  /** The body as it came, before anything parsed it. */
  body: string | Uint8Array;
  /** The secret shared with the sender; several while it is replaced. One that fits is enough. */
  secret: WebhookSecrets;
  /** How far the sender's clock may be from this one, either way, in seconds. Default 300. */
  toleranceSeconds?: number;
}

export interface SignWebhookOptions {
  eventId: string;
  body: string | Uint8Array;
  /** Each of several secrets adds a signature. */
  secret: WebhookSecrets;
  /** Default: now. */
  sentAt?: Date;
}

export interface WebhookSignatureHeaders {
  'webhook-id': string;
  'webhook-timestamp': string;
  'webhook-signature': string;
}

/**
 * For receivers: checks that the sender of a request has the secret, and that it is unchanged and recent; otherwise throws a
 * `PostcommitError` with `POSTCOMMIT_E_WEBHOOK_UNVERIFIED`. It does not detect a repetition: keep the event id, as
 * delivery is at least once.
 *
 * @example
 * import { verifyWebhook } from 'postcommit/webhook';
 *
 * async function receive(request: Request): Promise<Response> {
 *   const body = await request.text();
 *   const { eventId } = verifyWebhook({ headers: request.headers, body, secret: process.env.WEBHOOK_SECRET ?? '' });
 *   console.log(`event ${eventId} is genuine`, JSON.parse(body));
 *   return new Response(null, { status: 204 });
 * }
 */
export function verifyWebhook(options: VerifyWebhookOptions): { eventId: string; sentAt: Date } {
  checkNames(options, 'verifyWebhook()', ['headers', 'body', 'secret', 'toleranceSeconds']);
  const { body, secret, toleranceSeconds = 300 } = options;
  if (typeof body !== 'string' && !(body instanceof Uint8Array)) {
    throw badOption(
      'body must be the raw body of the request, a string or a Uint8Array, not what a parser made of it.',
    );
  }
  if (!(toleranceSeconds >= 0)) throw badOption('toleranceSeconds must be a number of seconds.');
  const keys = readSecrets(secret);
  const { eventId, timestamp, signatures } = readSignatureHeaders(options.headers, toleranceSeconds);
  const expected = keys.map((key) => Buffer.from(signatureWith(key, eventId, timestamp, body)));
  const given = signatures.split(' ').map((signature) => Buffer.from(signature));
  const fits = given.some((one) =>
    expected.some((other) => one.length === other.length && timingSafeEqual(one, other)),
  );
  if (!fits) throw unverified('No signature fits the secret and the body.');
  return { eventId, sentAt: new Date(Number(timestamp) * 1_000) };
}

/** The headers of a signed request that is recent. Throws like `verifyWebhook`, but needs no body, and so proves nothing about the sender. */
export function readSignatureHeaders(
  headers: VerifyWebhookOptions['headers'],
  toleranceSeconds: number,
): { eventId: string; timestamp: string; signatures: string } {
  const eventId = headerOf(headers, 'webhook-id');
  const timestamp = headerOf(headers, 'webhook-timestamp');
  const signatures = headerOf(headers, 'webhook-signature');
  if (!/^\d{1,12}$/.test(timestamp)) throw unverified('webhook-timestamp is not a number of seconds.');
  const aheadSeconds = Number(timestamp) - Date.now() / 1_000;
  if (Math.abs(aheadSeconds) > toleranceSeconds) {
    const where = aheadSeconds > 0 ? 'in the future' : 'old';
    throw unverified(`It is ${Math.round(Math.abs(aheadSeconds))} s ${where}, and ${toleranceSeconds} are tolerated.`);
  }
  return { eventId, timestamp, signatures };
}

/** The headers that make a body a signed webhook, e.g. for tests of a receiver. */
export function signWebhook(options: SignWebhookOptions): WebhookSignatureHeaders {
  checkNames(options, 'signWebhook()', ['eventId', 'body', 'secret', 'sentAt']);
  const { eventId, body, secret, sentAt } = options;
  return signatureHeaders(readSecrets(secret), eventId, body, (sentAt ?? new Date()).getTime());
}

export function signatureHeaders(
  keys: readonly Uint8Array[],
  eventId: string,
  body: string | Uint8Array,
  sentAtMs: number,
): WebhookSignatureHeaders {
  const timestamp = String(Math.floor(sentAtMs / 1_000));
  return {
    'webhook-id': eventId,
    'webhook-timestamp': timestamp,
    'webhook-signature': keys.map((key) => signatureWith(key, eventId, timestamp, body)).join(' '),
  };
}

/** The keys in the secrets. Its errors never contain a secret. */
export function readSecrets(secrets: WebhookSecrets): Uint8Array[] {
  const list = Array.isArray(secrets) ? (secrets as readonly WebhookSecret[]) : [secrets as WebhookSecret];
  if (list.length === 0 || list.length > 10) throw badOption('secret must be one secret, or a list of 1 to 10.');
  return list.map(readSecret);
}

function readSecret(secret: WebhookSecret): Uint8Array {
  if (secret instanceof Uint8Array) {
    if (secret.length === 0) throw badOption('secret has no bytes.');
    return secret;
  }
  if (typeof secret !== 'string') throw badOption(`secret must be a string or a Uint8Array, not ${typeof secret}.`);
  if (secret === '') throw badOption('secret is empty. Is its environment variable set?');
  if (/^wh[sp]k_/.test(secret))
    throw badOption('secret is an asymmetric key (whsk_, whpk_): only whsec_ is supported.');
  const encoded = secret.replace(/^whsec_/, '');
  if (!/^(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}(?:==)?|[A-Za-z0-9+/]{3}=?)?$/.test(encoded)) {
    throw badOption('secret must be base64, with or without whsec_ in front. Pass another format as bytes.');
  }
  const key = Buffer.from(encoded, 'base64');
  if (key.length < 24 || key.length > 64) {
    throw badOption(
      `secret has ${key.length} bytes when decoded. It must be whsec_ and base64 of 24 to 64 random bytes, as Standard Webhooks has it. Pass other lengths as bytes.`,
    );
  }
  return key;
}

function signatureWith(key: Uint8Array, eventId: string, timestamp: string, body: string | Uint8Array): string {
  const hmac = createHmac('sha256', key).update(`${eventId}.${timestamp}.`).update(body);
  return `v1,${hmac.digest('base64')}`;
}

function headerOf(headers: VerifyWebhookOptions['headers'], name: string): string {
  const value = headers instanceof Headers ? headers.get(name) : plainHeader(headers, name);
  // A header that comes twice is not a string, and which one counts would be a guess.
  if (typeof value !== 'string' || value === '') throw unverified(`The header ${name} is missing.`);
  return value;
}

function plainHeader(headers: Readonly<Record<string, unknown>>, name: string): unknown {
  const written = Object.keys(headers ?? {}).find((key) => key.toLowerCase() === name);
  return written === undefined ? undefined : headers[written];
}

/** A misspelt `toleranceSeconds` would be the default one. */
function checkNames(options: object, of: string, known: readonly string[]): void {
  const unknown = unknownOption(options, known, of);
  if (unknown !== undefined) throw badOption(unknown);
}

function unverified(detail: string): PostcommitError {
  return new PostcommitError('POSTCOMMIT_E_WEBHOOK_UNVERIFIED', detail);
}

function badOption(detail: string): PostcommitError {
  return new PostcommitError('POSTCOMMIT_E_BAD_OPTION', detail);
}
