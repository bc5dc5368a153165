import { setMaxListeners } from 'node:events';
import { isConnectionFailure } from '../database/database-error.ts';
import { PostcommitError } from '../errors.ts';
import { ConnectionLosses } from '../relay/event/connection-losses.ts';
import { isReject } from '../relay/event/reject.ts';
import { retryDelayMs } from '../relay/event/retry-policy.ts';
import { inRemoteSpan, type MessagingOperation } from '../telemetry/spans.ts';
import type { ReceivedEvent } from '../wire/received-event.ts';
import type { ResolvedConsumerOptions, TransactionalConsumerContext } from './consumer-options.ts';
import { readNewest, readWithin } from './newest-event.ts';

/**
 * What became of an event. `failed`: its attempts are used up. `rejected`: retrying cannot help. `released`: it was not processed, or
 * not to the end, and the broker must deliver it again. `unavailable`: the database of the inbox is, or the catalogue lacks its version.
 * `skipped`: the catalogue does not list its type.
 */
export type Processed =
  | { readonly kind: 'processed' | 'duplicate' | 'skipped'; readonly attempts: number }
  | {
      readonly kind: 'failed' | 'rejected' | 'unavailable';
      readonly error: unknown;
      readonly attempts: number;
      /** It is unavailable since a connection was lost after the handler was called. */
      readonly isLoss?: boolean;
    }
  | { readonly kind: 'released' };

/** Where a message was read from, in the words of OpenTelemetry's messaging conventions. */
export interface MessageOrigin {
  /** The kind of broker, as its publisher has it. */
  readonly system: string;
  /** Topic, queue, subject or stream. */
  readonly destination?: string | undefined;
  readonly attributes?: Readonly<Record<string, string | number>>;
}

export interface ProcessorSignals {
  /** Aborted when no other attempt may begin: the consumer stops, or the broker gave the message to another one. */
  readonly ending: AbortSignal;
  /** Aborted when attempts in progress may not go on either. */
  readonly abandoned: AbortSignal;
}

export interface ProcessorReports {
  /** An attempt failed, and another one follows. */
  failed(event: ReceivedEvent, attempt: number, delayMs: number, error: unknown): void;
  /** The inbox cannot be used; no attempt is counted. */
  unavailable(event: ReceivedEvent, delayMs: number, error: unknown): void;
}

const outageDelayMaxMs = 5_000;

/** Calls the handler for one event: deduplicated, in the trace of its emitter, and with retries. */
export class EventProcessor {
  readonly #options: ResolvedConsumerOptions;
  readonly #reports: ProcessorReports;
  /** Whether an outage of the inbox's database is waited out. Otherwise the event is `unavailable` at once. */
  readonly #waitsOutOutages: boolean;
  /** By event, across deliveries: where an outage is not waited out, each delivery ends with its first loss. */
  readonly #losses = new ConnectionLosses();

  constructor(options: ResolvedConsumerOptions, reports: ProcessorReports, waitsOutOutages: boolean) {
    this.#options = options;
    this.#reports = reports;
    this.#waitsOutOutages = waitsOutOutages;
  }

  async process(event: ReceivedEvent, origin: MessageOrigin, signals: ProcessorSignals): Promise<Processed> {
    let outages = 0;
    let reading: Promise<ReceivedEvent | undefined> | undefined;
    for (let attempt = 1; ; ) {
      if (signals.ending.aborted) return released;
      // Read once: an upcast may change what it is given.
      reading ??= readNewest(event, this.#options.events, this.#options.unknownVersions);
      const work = this.#try(event, reading, { origin, attempt }, signals);
      const result = await untilAbandoned(work, signals.abandoned);
      // Neither a stop nor an outage ends a row of losses.
      if (result.kind !== 'released' && result.kind !== 'unavailable') this.#losses.forget(event.id);
      if (!('error' in result)) return result;
      const { error } = result;
      // A handler may end its own connection with every call: without a bound its event would be tried forever.
      const isFree = !result.isLoss || this.#losses.isFree(event.id);
      const kind = isFree ? result.kind : 'failed';
      if (kind === 'rejected') return result;
      // Its attempts go on where the broker delivers it next.
      if (signals.abandoned.aborted) return released;
      let delayMs: number | undefined;
      if (kind === 'unavailable') {
        if (!this.#waitsOutOutages) return result;
        delayMs = Math.min(outageDelayMaxMs, 100 * 2 ** Math.min(outages++, 10));
        this.#reports.unavailable(event, delayMs, error);
      } else {
        delayMs = retryDelayMs(this.#options.retry, attempt);
        if (delayMs === undefined) return { kind: 'failed', error, attempts: attempt };
        this.#reports.failed(event, attempt, delayMs, error);
        attempt++;
      }
      await pause(delayMs, signals.ending);
    }
  }

  /** One attempt: the schema, then the handler. Never rejects. */
  async #try(
    { type }: ReceivedEvent,
    reading: Promise<ReceivedEvent | undefined>,
    { origin, attempt }: { origin: MessageOrigin; attempt: number },
    { ending, abandoned }: ProcessorSignals,
  ): Promise<Processed> {
    const { timeoutMs } = this.#options;
    const startedAt = performance.now();
    let event: ReceivedEvent | undefined;
    try {
      event = await readWithin(timeoutMs, reading, type);
    } catch (error) {
      return this.#unread(error, attempt);
    }
    if (event === undefined) return { kind: 'skipped', attempts: 0 };
    // An asynchronous schema may have taken until after the end.
    if (ending.aborted) return released;
    const remainingMs = Math.max(1, Math.ceil(timeoutMs - (performance.now() - startedAt)));
    const call = new HandlerCall(this.#options, { event, origin, attempt, remainingMs }, abandoned);
    try {
      const isDuplicate = await call.run();
      return { kind: isDuplicate ? 'duplicate' : 'processed', attempts: attempt };
    } catch (error) {
      return failureOf(error, call, attempt);
    }
  }

  #unread(error: unknown, attempt: number): Processed {
    const code = error instanceof PostcommitError ? error.code : undefined;
    if (code === 'POSTCOMMIT_E_WORK_TIMEOUT') return { kind: 'failed', error, attempts: attempt };
    const waitsForCatalogue = code === 'POSTCOMMIT_E_UNKNOWN_VERSION' && this.#options.unknownVersions === 'retry';
    return { kind: waitsForCatalogue ? 'unavailable' : 'rejected', error, attempts: 0 };
  }
}

const released: Processed = { kind: 'released' };

/** One call of the handler, in the transaction of the inbox where there is one. */
class HandlerCall {
  readonly #options: ResolvedConsumerOptions;
  readonly #event: ReceivedEvent;
  readonly #origin: MessageOrigin;
  readonly #attempt: number;
  /** What the schema has left of `timeoutMs`. */
  readonly #remainingMs: number;
  readonly #abandoned: AbortSignal;
  isCalled = false;
  /** What the handler threw, as opposed to the inbox around it. */
  thrown: { readonly error: unknown } | undefined;

  constructor(
    options: ResolvedConsumerOptions,
    given: { event: ReceivedEvent; origin: MessageOrigin; attempt: number; remainingMs: number },
    abandoned: AbortSignal,
  ) {
    this.#options = options;
    this.#event = given.event;
    this.#origin = given.origin;
    this.#attempt = given.attempt;
    this.#remainingMs = given.remainingMs;
    this.#abandoned = abandoned;
  }

  /** Returns whether the event was processed before. */
  async run(): Promise<boolean> {
    const { inbox, transactional, timeoutMs } = this.#options;
    if (inbox === undefined) {
      await this.#handle(undefined, true);
      return false;
    }
    if (transactional) return (await inbox.transaction(this.#event.id, (tx) => this.#handle(tx, false))).duplicate;
    // The handler has a time limit of its own, so this one only keeps the transaction open for long enough.
    const limit = { timeoutMs: Math.min(3_600_000, timeoutMs + 1_000) };
    return (await inbox.onceOutside(this.#event.id, () => this.#handle(undefined, true), limit)).duplicate;
  }

  #operation(): MessagingOperation {
    const { system, destination, attributes } = this.#origin;
    const { inbox } = this.#options;
    return {
      name: 'process',
      system,
      destination,
      attributes: { ...attributes, ...(inbox && { 'messaging.consumer.group.name': inbox.name }) },
    };
  }

  async #handle(tx: unknown, endsInTime: boolean): Promise<void> {
    this.isCalled = true;
    const controller = new AbortController();
    setMaxListeners(0, controller.signal);
    const abort = () => controller.abort(this.#abandoned.reason);
    this.#abandoned.addEventListener('abort', abort, { once: true });
    const { timeoutMs } = this.#options;
    let overdue = (_error: Error) => {};
    const late = new Promise<never>((_, reject) => {
      overdue = reject;
    });
    late.catch(() => {});
    const timer = setTimeout(() => {
      const error = new PostcommitError('POSTCOMMIT_E_WORK_TIMEOUT', `timeoutMs is ${timeoutMs}.`);
      controller.abort(error);
      if (endsInTime) overdue(error);
    }, this.#remainingMs);
    try {
      const context = { signal: controller.signal, attempt: this.#attempt, ...(tx !== undefined && { tx }) };
      const call = this.#options.handle as (event: ReceivedEvent, context: unknown) => unknown;
      const handling = inRemoteSpan(this.#operation(), this.#event, async () => {
        await call(this.#event, context as TransactionalConsumerContext<unknown>);
      });
      await Promise.race([handling, late]);
    } catch (error) {
      this.thrown = { error };
      throw error;
    } finally {
      clearTimeout(timer);
      this.#abandoned.removeEventListener('abort', abort);
    }
  }
}

/** Not the fault of the event: the database of the inbox is down, or not set up. */
const outages: ReadonlySet<string> = new Set([
  'POSTCOMMIT_E_DATABASE_UNREACHABLE',
  'POSTCOMMIT_E_DATABASE_REFUSED',
  'POSTCOMMIT_E_READ_ONLY',
  'POSTCOMMIT_E_COMMIT_UNKNOWN',
  'POSTCOMMIT_E_CLIENT_CLOSED',
  'POSTCOMMIT_E_MIGRATION_MISSING',
  'POSTCOMMIT_E_PERMISSION_DENIED',
  'POSTCOMMIT_E_LOCK_TIMEOUT',
]);

function failureOf(error: unknown, { isCalled, thrown }: HandlerCall, attempts: number): Processed {
  // It counts even if the connection was lost meanwhile.
  if (isReject(thrown?.error)) return { kind: 'rejected', error: thrown?.error, attempts };
  // An ECONNREFUSED that the handler throws is about what the handler called.
  if (thrown !== undefined && thrown.error === error) return { kind: 'failed', error, attempts };
  const isOutage = error instanceof PostcommitError ? outages.has(error.code) : isConnectionFailure(error);
  return isOutage ? { kind: 'unavailable', error, attempts, isLoss: isCalled } : { kind: 'failed', error, attempts };
}

async function untilAbandoned(work: Promise<Processed>, abandoned: AbortSignal): Promise<Processed> {
  let stop = () => {};
  const giveUp = new Promise<Processed>((resolve) => {
    stop = () => resolve(released);
  });
  if (abandoned.aborted) return released;
  abandoned.addEventListener('abort', stop, { once: true });
  try {
    return await Promise.race([work, giveUp]);
  } finally {
    abandoned.removeEventListener('abort', stop);
  }
}

/** Waits, or until the signal is aborted. */
export async function pause(ms: number, signal: AbortSignal): Promise<void> {
  if (signal.aborted) return;
  await new Promise<void>((resolve) => {
    const done = () => {
      clearTimeout(timer);
      signal.removeEventListener('abort', done);
      resolve();
    };
    const timer = setTimeout(done, ms);
    signal.addEventListener('abort', done, { once: true });
  });
}
