import type { IncomingMessage as NodeRequest, ServerResponse } from 'node:http';
import type { EventCatalogue } from '../catalogue/catalogue.ts';
import { PostcommitError } from '../errors.ts';
import { errorText } from '../telemetry/error-text.ts';
import { readSecrets, verifyWebhook, type WebhookSecrets } from '../wire/webhook-signature.ts';
import { type ConsumerOptions, readConsumerOptions, resolveConsumerOptions } from './consumer-options.ts';
import { EventConsumer } from './event-consumer.ts';
import type { Processed } from './event-processor.ts';
import { Intake, quietController, reasonOf } from './intake.ts';
import { lowerCaseHeaders } from './message-headers.ts';
import { BodyTooLarge, bodyOfNode, bodyOfRequest } from './request-body.ts';

interface WebhookOnly {
  /** The secret shared with the sender; several while it is replaced. One that fits is enough. */
  secret: WebhookSecrets;
  /** How far the sender's clock may be from this one, either way, in seconds, from 0 to 86,400. Default 300. */
  toleranceSeconds?: number;
  /** The largest body in bytes, from 1 to 1,073,741,824. A larger one is answered with 413. Default 10,485,760. */
  bodyBytesMax?: number;
  /**
   * Requests taken at most beyond `inFlightMax`, from 0 to 100,000: those whose body is still read, and those that wait for a handler.
   * Further ones are answered with 503. Default 1,000.
   */
  waitingMax?: number;
}

/** Options of `consumeWebhook()`. */
export type WebhookConsumerOptions<Tx, Catalogue extends EventCatalogue = EventCatalogue> = WebhookOnly &
  ConsumerOptions<Tx, Catalogue>;

const own = ['secret', 'toleranceSeconds', 'bodyBytesMax', 'waitingMax'];

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
  return new WebhookConsumer(intake, {
    secret: options.secret,
    toleranceSeconds: whole('toleranceSeconds', 300, 0, 86_400),
    bodyBytesMax: whole('bodyBytesMax', 10_485_760, 1, 1_073_741_824),
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
  body(bytesMax: number): Promise<Uint8Array | string>;
}

const retryLater = { 'retry-after': '5' };

/**
 * A consumer of webhook requests, with a handler of requests for servers of both kinds. It takes requests from the beginning, without
 * `start()`. `stop()` answers new requests with 503 and waits for those in flight.
 */
export class WebhookConsumer extends EventConsumer {
  readonly #intake: Intake;
  readonly #options: Required<WebhookOnly>;
  /** Requests that are not answered. */
  #open = 0;

  constructor(intake: Intake, options: Required<WebhookOnly>) {
    super(intake, { start: async () => {}, stop: () => intake.idle() }, { runs: true });
    this.#intake = intake;
    this.#options = options;
  }

  /** For servers of the Fetch API: Hono, Next.js, Bun and others. Never rejects. */
  readonly handleRequest = async (request: Request): Promise<Response> => {
    const { status, text, headers } = await this.#answer({
      method: request.method,
      headers: request.headers,
      lost: request.signal,
      body: (bytesMax) => bodyOfRequest(request, bytesMax),
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
      body: (bytesMax) => bodyOfNode(request, bytesMax),
    });
    if (response.destroyed || response.writableEnded) return;
    // The rest of a body that was not read to its end would be taken for the next request.
    const closing = request.complete ? {} : { connection: 'close' };
    response.writeHead(status, { ...headers, ...closing, 'content-length': Buffer.byteLength(text ?? '') }).end(text);
  };

  async #answer(request: WebhookRequest): Promise<Answer> {
    if (request.method !== 'POST') return { status: 405, headers: { allow: 'POST' } };
    const intake = this.#intake;
    if (intake.stopping.aborted) return { status: 503, text: 'The consumer is stopping.', headers: retryLater };
    if (this.#open >= intake.options.inFlightMax + this.#options.waitingMax) {
      return { status: 503, text: 'Too many requests are waiting.', headers: retryLater };
    }
    this.#open++;
    try {
      return await this.#read(request);
    } finally {
      this.#open--;
    }
  }

  async #read(request: WebhookRequest): Promise<Answer> {
    const { bodyBytesMax, secret, toleranceSeconds } = this.#options;
    try {
      const body = await request.body(bodyBytesMax);
      const { eventId } = verifyWebhook({ headers: request.headers, body, secret, toleranceSeconds });
      return await this.#receive(request, body, eventId);
    } catch (error) {
      if (error instanceof BodyTooLarge) return { status: 413, text: `The body has more than ${bodyBytesMax} bytes.` };
      if (error instanceof PostcommitError && error.code === 'POSTCOMMIT_E_WEBHOOK_UNVERIFIED') {
        this.#intake.warn('webhook refused', { error: errorText(error) });
        return { status: 401, text: reasonOf(error) };
      }
      this.#intake.warn('webhook not read', { error: errorText(error) });
      return { status: 500, text: 'The request could not be read.' };
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
