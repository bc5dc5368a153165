import type { IncomingMessage as NodeRequest, ServerResponse } from 'node:http';
import type { EventCatalogue } from '../catalogue/catalogue.ts';
import { PostcommitError } from '../errors.ts';
import { errorText } from '../telemetry/error-text.ts';
import { readSecrets, readSignatureHeaders, verifyWebhook, type WebhookSecrets } from '../wire/webhook-signature.ts';
import { BodyReader } from './body-reader.ts';
import { type ConsumerOptions, readConsumerOptions, resolveConsumerOptions } from './consumer-options.ts';
import { EventConsumer } from './event-consumer.ts';
import type { Processed } from './event-processor.ts';
import { Intake, quietController, reasonOf } from './intake.ts';
import { lowerCaseHeaders } from './message-headers.ts';
import { type BodyLimits, BodyTooLarge, BodyTooSlow, bodyOfNode, bodyOfRequest } from './request-body.ts';

interface WebhookOnly {
  /** The secret shared with the sender; several while it is replaced. One that fits is enough. */
  secret: WebhookSecrets;
  /** How far the sender's clock may be from this one, either way, in seconds, from 0 to 86,400. Default 300. */
  toleranceSeconds?: number;
  /** The largest body in bytes, from 1 to 1,073,741,824. A larger one is answered with 413. Default 10,485,760. */
  bodyBytesMax?: number;
  /** Milliseconds for the body of a request to arrive, from 1 to 600,000. Then it is answered with 408. Default 5,000. */
  bodyTimeoutMs?: number;
  /**
   * Requests whose bodies are read at the same time, from 1 to 100,000. When another one comes, the oldest is answered with 408: so
   * requests that send slowly, and whose signature cannot be verified yet, keep no others out. Default 1,000.
   */
  readingMax?: number;
  /**
   * Bytes that all bodies being read hold together, from `bodyBytesMax` to 68,719,476,736. When they need more, the oldest request is
   * answered with 408. A lower limit saves memory, but lets senders without the secret displace slow requests with fewer bytes. Default
   * 67,108,864, or `bodyBytesMax` where that is more.
   */
  readingBytesMax?: number;
  /**
   * Verified requests that wait for a handler beyond `inFlightMax`, from 0 to 100,000. Further ones are answered with 503. Default 1,000.
   */
  waitingMax?: number;
}

/** Options of `consumeWebhook()`. */
export type WebhookConsumerOptions<Tx, Catalogue extends EventCatalogue = EventCatalogue> = WebhookOnly &
  ConsumerOptions<Tx, Catalogue>;

const own = [
  'secret',
  'toleranceSeconds',
  'bodyBytesMax',
  'bodyTimeoutMs',
  'readingMax',
  'readingBytesMax',
  'waitingMax',
];

/**
 * Consumes signed webhook requests. It verifies the signature and the age, and answers 2xx when the event is processed. A handler that
 * fails is answered with 500, and the sender delivers the event again. An event that can never be processed is answered with 400 or 422,
 * and becomes a dead letter of the sender.
 *
 * @example
 * import { createServer } from 'node:http';
 * import { createInbox, fromPg } from 'postcommit';
 * import { consumeWebhook } from 'postcommit/webhook';
 *
 * const orders = consumeWebhook({
 *   secret: process.env.WEBHOOK_SECRET ?? '',
 *   inbox: createInbox({ db: fromPg(pool) }).consumer('billing'),
 *   transactional: true,
 *   handle: (event, { tx }) => tx.query('insert into invoices (order_id) values ($1)', [event.aggregate?.id]),
 * });
 * createServer(orders.handleNode).listen(8080);
 */
export function consumeWebhook<Tx, Catalogue extends EventCatalogue = EventCatalogue>(
  options: WebhookConsumerOptions<Tx, Catalogue>,
): WebhookConsumer {
  const { fail, whole } = readConsumerOptions('consumeWebhook', options, own);
  if (options.secret === undefined || options.secret === null) throw fail('secret is required.');
  readSecrets(options.secret);
  // The sender retries, and waits 10 s for an answer by default.
  const defaults = { retry: { attemptsMax: 1 }, timeoutMs: 8_000 };
  const intake = new Intake(resolveConsumerOptions('consumeWebhook', options, own, defaults), {
    waitsOutOutages: false,
    keepsFailed: true,
  });
  const bodyBytesMax = whole('bodyBytesMax', 10_485_760, 1, 1_073_741_824);
  return new WebhookConsumer(intake, {
    secret: options.secret,
    toleranceSeconds: whole('toleranceSeconds', 300, 0, 86_400),
    bodyBytesMax,
    bodyTimeoutMs: whole('bodyTimeoutMs', 5_000, 1, 600_000),
    readingMax: whole('readingMax', 1_000, 1, 100_000),
    readingBytesMax: whole('readingBytesMax', Math.max(67_108_864, bodyBytesMax), bodyBytesMax, 68_719_476_736),
    waitingMax: whole('waitingMax', 1_000, 0, 100_000),
  });
}

interface Answer {
  readonly status: number;
  /** For the sender's log. */
  readonly text?: string;
  readonly headers?: Readonly<Record<string, string>>;
}

interface WebhookRequest {
  readonly method: string | undefined;
  readonly headers: Headers | NodeRequest['headers'];
  /** Aborted when the sender no longer waits. */
  readonly lost: AbortSignal;
  body(limits: BodyLimits): Promise<Uint8Array | string>;
}

const retryLater = { 'retry-after': '5' };
const stopping: Answer = { status: 503, text: 'The consumer is stopping.', headers: retryLater };

/**
 * A consumer of webhook requests, with a handler of requests for servers of both kinds. It takes requests from the beginning, without
 * `start()`. `stop()` answers new requests with 503 and waits for those in flight.
 */
export class WebhookConsumer extends EventConsumer {
  readonly #intake: Intake;
  readonly #options: Required<WebhookOnly>;
  readonly #bodies: BodyReader;
  /** Verified requests that are not answered. */
  #open = 0;

  constructor(intake: Intake, options: Required<WebhookOnly>) {
    super(intake, { start: async () => {}, stop: () => intake.idle() }, { runs: true });
    this.#intake = intake;
    this.#options = options;
    this.#bodies = new BodyReader(options);
  }

  /** For servers of the Fetch API: Hono, Next.js, Bun and others. Never rejects. */
  readonly handleRequest = async (request: Request): Promise<Response> => {
    const { status, text, headers } = await this.#answer({
      method: request.method,
      headers: request.headers,
      lost: request.signal,
      body: (limits) => bodyOfRequest(request, limits),
    });
    return new Response(text ?? null, { status, headers: { ...headers } });
  };

  /** For `node:http`, Express and Fastify (`request.raw`). It must come before anything that parses the body. Never rejects. */
  readonly handleNode = async (request: NodeRequest, response: ServerResponse): Promise<void> => {
    const lost = quietController();
    response.once('close', () => lost.abort());
    const { status, text, headers } = await this.#answer({
      method: request.method,
      headers: request.headers,
      lost: lost.signal,
      body: (limits) => bodyOfNode(request, limits),
    });
    if (response.destroyed || response.writableEnded) return;
    // The rest of a body that was not read to its end would be taken for the next request.
    const closing = request.complete ? {} : { connection: 'close' };
    response.writeHead(status, { ...headers, ...closing, 'content-length': Buffer.byteLength(text ?? '') }).end(text);
  };

  /**
   * The signature is verified before the request takes a slot: anyone can send a body slowly. It covers the body, so only the presence
   * and the age of its headers are checked before.
   */
  async #answer(request: WebhookRequest): Promise<Answer> {
    if (request.method !== 'POST') return { status: 405, headers: { allow: 'POST' } };
    const { bodyBytesMax, bodyTimeoutMs, secret, toleranceSeconds } = this.#options;
    try {
      if (this.#intake.stopping.aborted) return stopping;
      readSignatureHeaders(request.headers, toleranceSeconds);
      const body = await this.#bodies.read((limits) => request.body(limits));
      const { eventId } = verifyWebhook({ headers: request.headers, body, secret, toleranceSeconds });
      return await this.#admit(request, body, eventId);
    } catch (error) {
      if (error instanceof BodyTooLarge) return { status: 413, text: `The body has more than ${bodyBytesMax} bytes.` };
      if (error instanceof BodyTooSlow) {
        this.#intake.warn('webhook body too slow', { bodyTimeoutMs });
        return { status: 408, text: 'The body did not arrive in time.' };
      }
      if (error instanceof PostcommitError && error.code === 'POSTCOMMIT_E_WEBHOOK_UNVERIFIED') {
        this.#intake.warn('webhook refused', { error: errorText(error) });
        return { status: 401, text: reasonOf(error) };
      }
      this.#intake.warn('webhook not read', { error: errorText(error) });
      return { status: 500, text: 'The request could not be read.' };
    }
  }

  async #admit(request: WebhookRequest, body: Uint8Array | string, eventId: string): Promise<Answer> {
    const { stopping: isStopping, options } = this.#intake;
    if (isStopping.aborted) return stopping;
    if (this.#open >= options.inFlightMax + this.#options.waitingMax) {
      return { status: 503, text: 'Too many requests are waiting.', headers: retryLater };
    }
    this.#open++;
    try {
      return await this.#receive(request, body, eventId);
    } finally {
      this.#open--;
    }
  }

  async #receive({ headers, lost }: WebhookRequest, body: Uint8Array | string, signedId: string): Promise<Answer> {
    const given = headers instanceof Headers ? Object.fromEntries(headers) : headers;
    let reason = '';
    const result = await this.#intake.receive({
      message: { body, headers: lowerCaseHeaders(given) },
      origin: { system: 'webhook' },
      signedId,
      lost,
      deadLetter: (dead) => {
        reason = dead.reason;
      },
    });
    return answerTo(result, reason);
  }
}

function answerTo(result: Processed, reason: string): Answer {
  switch (result.kind) {
    case 'processed':
    case 'duplicate':
    case 'skipped':
      return { status: 204 };
    case 'rejected':
      // 400: it cannot be read. Either makes it a dead letter of the sender.
      return { status: result.attempts === 0 ? 400 : 422, text: reason };
    case 'failed':
      // The text of the error may hold what the sender must not know.
      return { status: 500, text: 'The handler failed.' };
    case 'unavailable':
      return { status: 503, text: textOfOutage(result.error), headers: retryLater };
    case 'released':
      return { status: 503, text: 'The event was not processed.', headers: retryLater };
  }
}

/** The text of a database error may hold what the sender must not know. */
function textOfOutage(error: unknown): string {
  const isUnknownVersion = error instanceof PostcommitError && error.code === 'POSTCOMMIT_E_UNKNOWN_VERSION';
  return isUnknownVersion ? reasonOf(error) : 'The inbox is unavailable.';
}
