import { readSecrets, signatureHeaders } from '../../wire/webhook-signature.ts';
import { reasonOf, untilAborted } from '../failure.ts';
import type { Message, PublishOutcome } from '../publisher.ts';
import type { Connections } from './connections.ts';
import { IllegalHeader, requestHeaders } from './headers.ts';
import type { HostSlots } from './hosts.ts';
import { type ResolvedWebhookOptions, readUrl } from './options.ts';
import { clean, outcomeOfAnswer, outcomeOfFailure } from './outcome.ts';
import { exchange, type HttpAnswer, limited, Stopped } from './request.ts';

interface Target {
  url: URL;
  /** As the route or the operator wrote it. */
  urlText: string;
  /** Whether the route named the URL, and not the operator. */
  fromRoute: boolean;
}

interface Prepared {
  keys: Uint8Array[];
  giveBack: () => void;
}

/** Sends one event to its URL and returns the outcome. */
export class WebhookDelivery {
  readonly #options: ResolvedWebhookOptions;
  readonly #connections: Connections;
  readonly #slots: HostSlots;

  constructor(options: ResolvedWebhookOptions, connections: Connections, slots: HostSlots) {
    this.#options = options;
    this.#connections = connections;
    this.#slots = slots;
  }

  async deliver(message: Message, signal: AbortSignal): Promise<PublishOutcome> {
    const target = this.#targetOf(message);
    if (typeof target === 'string') return { kind: 'rejected', reason: clean(target) };
    if (typeof message.body !== 'string' && !(message.body instanceof Uint8Array)) {
      return { kind: 'rejected', reason: 'The body is neither a text nor bytes.' };
    }
    let headers: Record<string, string>;
    try {
      const own = !target.fromRoute || this.#options.url === undefined;
      headers = requestHeaders(message, own ? this.#options.headers : {});
    } catch (error) {
      if (!(error instanceof IllegalHeader)) throw error;
      return { kind: 'rejected', reason: clean(error.message) };
    }
    const ready = await this.#prepared(message, target, signal);
    if ('kind' in ready) return ready;
    try {
      return await this.#send(message, target, headers, ready.keys, signal);
    } finally {
      ready.giveBack();
    }
  }

  /** The URL, or why there is none. */
  #targetOf({ topic }: Message): Target | string {
    if (typeof topic === 'string' && /^https?:/i.test(topic)) {
      const url = readUrl(topic);
      if (url !== undefined) return { url, urlText: topic, fromRoute: true };
      return `The topic ${shown(topic)} is not a valid URL.`;
    }
    if (this.#options.url !== undefined) {
      return { url: this.#options.url, urlText: this.#options.urlText, fromRoute: false };
    }
    return `No URL: the topic ${shown(topic)} is none, and the destination has no url of its own.`;
  }

  /** Gets the secret and a slot of the host, within `timeoutMs` together. */
  async #prepared(message: Message, { url, urlText }: Target, signal: AbortSignal): Promise<Prepared | PublishOutcome> {
    const { timeoutMs, perHostMax, secret } = this.#options;
    const giveBack = typeof secret === 'function' ? undefined : this.#slots.takeFree(url.host);
    if (giveBack !== undefined && typeof secret !== 'function') return { keys: secret ?? [], giveBack };
    let keys: Uint8Array[] | undefined;
    try {
      return await limited(signal, timeoutMs, async (limit) => {
        keys = await this.#keysFor(message, urlText, limit);
        return { keys, giveBack: await this.#slots.take(url.host, limit) };
      });
    } catch (error) {
      if (error instanceof Stopped) return { kind: 'unavailable', reason: error.message };
      const reason =
        keys === undefined
          ? clean(`Not sent: the secret could not be had. ${reasonOf(error)}`)
          : `Not sent: ${url.host} has been busy with ${perHostMax} other requests for ${timeoutMs} ms.`;
      return { kind: 'failed', reason };
    }
  }

  async #keysFor(message: Message, url: string, limit: AbortSignal): Promise<Uint8Array[]> {
    const { secret } = this.#options;
    if (secret === null) return [];
    if (typeof secret !== 'function') return secret;
    const { topic, eventId, eventType } = message;
    const asked = Promise.resolve().then(() => secret({ url, topic, eventId, eventType }));
    const answer = await untilAborted(asked, limit);
    return answer === null ? [] : readSecrets(answer);
  }

  async #send(
    message: Message,
    { url, urlText, fromRoute }: Target,
    headers: Record<string, string>,
    keys: Uint8Array[],
    signal: AbortSignal,
  ): Promise<PublishOutcome> {
    const { timeoutMs, outcomeOf, onConnectionError } = this.#options;
    const { eventId, eventType } = message;
    const body = Buffer.from(message.body as string);
    const signed = keys.length === 0 ? headers : { ...headers, ...signatureHeaders(keys, eventId, body, Date.now()) };
    try {
      const answer = await limited(signal, timeoutMs, (limit) =>
        this.#followed(url, (at) => {
          const agents = this.#connections.agentsFor(at, fromRoute);
          return exchange({ url: at, method: 'POST', headers: signed, body }, agents, limit);
        }),
      );
      return outcomeOfAnswer(answer, { ...answer, url: urlText, eventId, eventType }, outcomeOf);
    } catch (error) {
      return outcomeOfFailure(error, url, onConnectionError ?? (fromRoute ? 'failed' : 'unavailable'));
    }
  }

  async #followed(url: URL, send: (url: URL) => Promise<HttpAnswer>): Promise<HttpAnswer> {
    let at = url;
    for (let redirects = 0; ; redirects += 1) {
      const answer = await send(at);
      const next = redirects < this.#options.redirectsMax ? nextUrl(answer, at) : undefined;
      if (next === undefined) return answer;
      at = next;
    }
  }
}

/** The topic for a reason, without what may be a user and a password. */
function shown(topic: unknown): string {
  return JSON.stringify(typeof topic === 'string' ? topic.replace(/:.*@/s, '://…@') : topic);
}

/**
 * Where a redirect leads, if it may be followed. Not to another host: it would get a body and a signature that are not
 * meant for it.
 */
function nextUrl({ status, headers }: HttpAnswer, from: URL): URL | undefined {
  const { location } = headers;
  if ((status !== 307 && status !== 308) || location === undefined || !URL.canParse(location, from.href))
    return undefined;
  const to = new URL(location, from);
  const upgraded = from.protocol === 'http:' && to.protocol === 'https:' && to.hostname === from.hostname;
  if (to.origin !== from.origin && !upgraded) return undefined;
  to.username = from.username;
  to.password = from.password;
  return to;
}
