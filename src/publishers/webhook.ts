import { setMaxListeners } from 'node:events';
import { PostcommitError } from '../errors.ts';
import { isUntrustedCertificate } from './failure.ts';
import { InFlightCalls } from './in-flight-calls.ts';
import { sendInKeyOrder } from './key-order.ts';
import type { Message, Publisher, PublisherCapabilities, PublisherParts, PublishOutcome } from './publisher.ts';
import { Connections } from './webhook/connections.ts';
import { WebhookDelivery } from './webhook/delivery.ts';
import { HostSlots } from './webhook/hosts.ts';
import {
  hostOfTopic,
  type ResolvedWebhookOptions,
  resolveWebhookOptions,
  type WebhookOptions,
} from './webhook/options.ts';
import { clean, failureText } from './webhook/outcome.ts';
import { exchange, limited } from './webhook/request.ts';

export type { WebhookConsumerOptions } from '../consumers/webhook.ts';
export { consumeWebhook, WebhookConsumer } from '../consumers/webhook.ts';
export type {
  SignWebhookOptions,
  VerifyWebhookOptions,
  WebhookSecret,
  WebhookSecrets,
  WebhookSignatureHeaders,
} from '../wire/webhook-signature.ts';
export { signWebhook, verifyWebhook } from '../wire/webhook-signature.ts';
export type { WebhookTlsOptions } from './webhook/connections.ts';
export type { WebhookOptions, WebhookTarget } from './webhook/options.ts';
export type { WebhookOutcomeKind, WebhookResponse } from './webhook/outcome.ts';

/**
 * Sends each event as a signed POST request (Standard Webhooks), to one URL or to the one that the route names as topic.
 * Receivers check it with `verifyWebhook`, or with any library for Standard Webhooks.
 *
 * @example
 * import { webhook } from 'postcommit/webhook';
 *
 * const billing = webhook({
 *   url: 'https://billing.example.com/events',
 *   secret: process.env.WEBHOOK_SECRET ?? '',
 * });
 */
export function webhook(options: WebhookOptions): Publisher {
  return new WebhookPublisher(resolveWebhookOptions(options));
}

class WebhookPublisher implements Publisher {
  readonly kind = 'webhook';
  readonly capabilities: PublisherCapabilities;
  readonly parts: PublisherParts;
  readonly #options: ResolvedWebhookOptions;
  readonly #connections: Connections;
  readonly #delivery: WebhookDelivery;
  readonly #calls = new InFlightCalls();
  #closed = false;
  #giveUp = quietController();

  constructor(options: ResolvedWebhookOptions) {
    this.#options = options;
    this.#connections = new Connections({
      lookup: options.lookup,
      perHostMax: options.perHostMax,
      tls: options.tls,
      routeTls: options.url === undefined ? options.tls : {},
      privateFromRoute: options.allowPrivateAddresses,
    });
    this.#delivery = new WebhookDelivery(options, this.#connections, new HostSlots(options.perHostMax));
    // The host of `url` is no part: when it is slow, so is the destination.
    this.parts = { of: hostOfTopic, inFlightMax: options.perHostMax };
    this.capabilities = {
      // One event per call, and many calls: events of a batch would all wait for the slowest receiver among them.
      batchSizeMax: 1,
      batchBytesMax: 1_000_000,
      batchesInFlightMax: options.inFlightMax,
      ordered: true,
      keyRuns: false,
      deduplicates: false,
      // The time it waits before it sends, and then for the answer.
      answerMsMax: 2 * options.timeoutMs,
      cloudEventsPrefix: 'ce-',
    };
  }

  async connect(signal: AbortSignal): Promise<void> {
    if (this.#closed) this.#giveUp = quietController();
    this.#closed = false;
    await this.health(signal);
  }

  async publish(batch: readonly Message[], signal: AbortSignal): Promise<readonly PublishOutcome[]> {
    if (this.#closed) return batch.map(() => ({ kind: 'unavailable', reason: 'The webhook publisher is closed.' }));
    const send = (either: AbortSignal) =>
      sendInKeyOrder(batch, this.#options.inFlightMax, (message) => this.#delivery.deliver(message, either));
    return this.#calls.add(untilEither([signal, this.#giveUp.signal], send));
  }

  async health(signal: AbortSignal): Promise<void> {
    const url = this.#options.healthUrl ?? this.#options.url;
    if (url === undefined) return;
    try {
      await limited(signal, this.#options.timeoutMs, (limit) => this.#signOfLife(url, limit));
    } catch (error) {
      if (error instanceof PostcommitError) throw error;
      const refused = isUntrustedCertificate(error);
      const code = refused ? 'POSTCOMMIT_E_DESTINATION_REFUSED' : 'POSTCOMMIT_E_DESTINATION_UNAVAILABLE';
      throw new PostcommitError(code, clean(failureText(error, url)), { cause: error });
    }
  }

  async #signOfLife(url: URL, signal: AbortSignal): Promise<void> {
    const { healthUrl, headers } = this.#options;
    if (healthUrl === undefined) return this.#connections.knock(url, signal);
    const request = { url, method: 'GET' as const, headers: { 'user-agent': 'postcommit', ...headers } };
    // An open connection proves nothing about new ones.
    const { fresh } = this.#connections.agentsFor(url, false);
    const { status } = await exchange(request, { pooled: fresh, fresh }, signal);
    if (status >= 200 && status <= 299) return;
    const refused = status === 401 || status === 403;
    const code = refused ? 'POSTCOMMIT_E_DESTINATION_REFUSED' : 'POSTCOMMIT_E_DESTINATION_UNAVAILABLE';
    throw new PostcommitError(code, `${url.host} answered ${status} to the health check.`);
  }

  async close(): Promise<void> {
    this.#closed = true;
    await this.#calls.settled(this.#options.timeoutMs);
    this.#giveUp.abort();
    this.#connections.destroy();
  }
}

/** Runs `work` with a signal that is aborted as soon as one of the others is. */
async function untilEither<T>(signals: readonly AbortSignal[], work: (either: AbortSignal) => Promise<T>): Promise<T> {
  const either = quietController();
  const stop = () => either.abort();
  for (const signal of signals) {
    if (signal.aborted) stop();
    signal.addEventListener('abort', stop, { once: true });
  }
  try {
    return await work(either.signal);
  } finally {
    for (const signal of signals) signal.removeEventListener('abort', stop);
  }
}

/** Every request adds a listener, and Node warns of a leak from the eleventh on. */
function quietController(): AbortController {
  const controller = new AbortController();
  setMaxListeners(0, controller.signal);
  return controller;
}
