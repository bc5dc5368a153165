import { setMaxListeners } from 'node:events';
import { PostcommitError } from '../../errors.ts';
import { cutReason, reasonOf, untilAborted } from '../failure.ts';
import { InFlightCalls } from '../in-flight-calls.ts';
import { sendInKeyOrder } from '../key-order.ts';
import type { Message, Publisher, PublisherCapabilities, PublishOutcome } from '../publisher.ts';
import { type AwsEntry, isFifo, toEntry } from './entry.ts';
import {
  type AwsEntryFailure,
  failureOfRequest,
  isAccessDenied,
  isAnswer,
  isRefusal,
  isRegionMissing,
} from './errors.ts';
import { AwsRequests } from './requests.ts';

/** What differs between SQS and SNS. */
export interface AwsService {
  readonly kind: 'sqs' | 'sns';
  /** Every event goes there, whatever its topic. */
  readonly onlyTarget: string | undefined;
  /** Whether every target is promised to be FIFO. Those that are, are served as such in any case. */
  readonly fifo: boolean;
  /** Of one message and of one request alike. */
  readonly messageBytesMax: number;
  /** Requests in flight in one call of `publish`. */
  readonly requestsAtOnceMax: number;
  open(): Promise<AwsSession>;
}

/** A client that is ready for use. */
export interface AwsSession {
  /** The queue's URL or the topic's ARN. Rejects with AWS's error, or with one that says what is wrong. */
  targetOf(topic: string, signal: AbortSignal): Promise<string>;
  /** The target is gone: it may be another one under the same name next time. */
  forget(target: string): void;
  send(target: string, entries: readonly AwsEntry[], signal: AbortSignal): Promise<AwsAnswer>;
  /** A cheap signed call: about the only target, or where there is none, a general one. */
  probe(signal: AbortSignal): Promise<unknown>;
  close(): void;
}

/** The ids are the entries' positions in the request. */
export interface AwsAnswer {
  readonly Successful?: readonly { readonly Id?: string | undefined }[] | undefined;
  readonly Failed?: readonly AwsEntryFailure[] | undefined;
}

/** Thrown by `targetOf`: the route's topic is no target, and the service was not asked. */
export class NoTarget extends Error {
  override readonly name = 'NoTarget';
}

/** How long `close` waits for calls in flight. */
const flushTimeoutMs = 5_000;

export class AwsPublisher implements Publisher {
  readonly kind: string;
  readonly capabilities: PublisherCapabilities;
  readonly #service: AwsService;
  readonly #calls = new InFlightCalls();
  #opening: Promise<AwsSession> | undefined;
  #closed = false;

  constructor(service: AwsService) {
    this.kind = service.kind;
    this.#service = service;
    this.capabilities = {
      batchSizeMax: 100,
      batchBytesMax: 8 * 1024 * 1024,
      batchesInFlightMax: 4,
      ordered: service.fifo,
      keyRuns: false,
      deduplicates: service.fifo,
      cloudEventsPrefix: 'ce_',
    };
  }

  async connect(signal: AbortSignal): Promise<void> {
    this.#closed = false;
    const session = await this.#session();
    try {
      await untilAborted(session.probe(signal), signal);
    } catch (error) {
      if (isRegionMissing(error)) {
        const why = `${this.kind}(): region is missing. Give region, or set AWS_REGION.`;
        throw new PostcommitError('POSTCOMMIT_E_BAD_OPTION', why, { cause: error });
      }
      // A role that may send may lack the right to list. Only with a single target does the probe need no other right.
      const refused = isRefusal(error) || (isAccessDenied(error) && this.#service.onlyTarget !== undefined);
      if (!refused && isAnswer(error)) return;
      const code = refused ? 'POSTCOMMIT_E_DESTINATION_REFUSED' : 'POSTCOMMIT_E_DESTINATION_UNAVAILABLE';
      throw new PostcommitError(code, `${this.kind}: ${describe(error)}`, { cause: error });
    }
  }

  publish(batch: readonly Message[], signal: AbortSignal): Promise<readonly PublishOutcome[]> {
    return this.#calls.add(this.#publish(batch, signal));
  }

  async #publish(batch: readonly Message[], signal: AbortSignal): Promise<readonly PublishOutcome[]> {
    const away = (reason: string) => batch.map((): PublishOutcome => ({ kind: 'unavailable', reason }));
    if (this.#closed) return away('The publisher is closed.');
    try {
      const session = await this.#session();
      return await withOwnSignal(signal, (own) => {
        const requests = new AwsRequests(session, this.#service, own);
        return sendInKeyOrder(batch, batch.length, (message) => this.#send(message, session, requests, own));
      });
    } catch (error) {
      return away(describe(error));
    }
  }

  async #send(
    message: Message,
    session: AwsSession,
    requests: AwsRequests,
    signal: AbortSignal,
  ): Promise<PublishOutcome> {
    if (typeof message.topic !== 'string' || message.topic === '') {
      return { kind: 'failed', reason: 'The route names no topic.' };
    }
    let target: string;
    try {
      target = await untilAborted(session.targetOf(message.topic, signal), signal);
    } catch (error) {
      if (error instanceof NoTarget) return { kind: 'failed', reason: cutReason(error.message) };
      const { outcome } = failureOfRequest(error, message.topic.slice(0, 200));
      // AWS does not know such a name: the route is wrong, the event is not.
      return outcome.kind === 'rejected' ? { kind: 'failed', reason: outcome.reason } : outcome;
    }
    const { fifo, messageBytesMax } = this.#service;
    if (fifo && !isFifo(target))
      return { kind: 'failed', reason: cutReason(`${target} is not FIFO, as fifo demands.`) };
    const entry = toEntry(message, isFifo(target), messageBytesMax);
    return 'kind' in entry ? entry : requests.add(target, entry);
  }

  async health(signal: AbortSignal): Promise<void> {
    if (this.#closed) throw new Error('The publisher is closed.');
    const session = await this.#session();
    try {
      await untilAborted(session.probe(signal), signal);
    } catch (error) {
      if (isRefusal(error) || !isAnswer(error)) throw new Error(describe(error), { cause: error });
    }
  }

  async close(): Promise<void> {
    this.#closed = true;
    await this.#calls.settled(flushTimeoutMs);
    const opening = this.#opening;
    this.#opening = undefined;
    const session = await opening?.catch(() => undefined);
    session?.close();
  }

  #session(): Promise<AwsSession> {
    if (this.#opening === undefined) {
      const opening = this.#service.open();
      opening.catch(() => {
        if (this.#opening === opening) this.#opening = undefined;
      });
      this.#opening = opening;
    }
    return this.#opening;
  }
}

/** Each request listens to the signal, and Node warns of a leak when more than ten do. */
async function withOwnSignal<T>(signal: AbortSignal, work: (own: AbortSignal) => Promise<T>): Promise<T> {
  const own = new AbortController();
  setMaxListeners(0, own.signal);
  const abort = () => own.abort(signal.reason);
  if (signal.aborted) abort();
  signal.addEventListener('abort', abort, { once: true });
  try {
    return await work(own.signal);
  } finally {
    signal.removeEventListener('abort', abort);
  }
}

function describe(error: unknown): string {
  const words = reasonOf(error);
  const isCode = error instanceof Error && !/^(?:Error|TypeError|AggregateError|PostcommitError)$/.test(error.name);
  return isCode && !words.includes(error.name) ? cutReason(`${error.name}: ${words}`) : words;
}
