import { type EventCatalogue, requireCatalogue } from '../catalogue/catalogue.ts';
import type { UnknownVersions } from '../catalogue/upcast.ts';
import type { InboxConsumer } from '../inbox/inbox.ts';
import { type OptionReader, readOptions } from '../publishers/publisher-options.ts';
import { type ResolvedRetry, type RetryPolicy, resolveRetry } from '../relay/event/retry-policy.ts';
import { type Logger, resolveLogger } from '../telemetry/logging.ts';
import type { EventToConsume } from './newest-event.ts';

/** The second argument of a handler. */
export interface ConsumerContext {
  /** Aborted after `timeoutMs`, and when the consumer has to stop without waiting longer. Pass it on, e.g. to `fetch`. */
  readonly signal: AbortSignal;
  /** 1 for the first attempt of this delivery. */
  readonly attempt: number;
}

/** The same with `transactional: true`. */
export interface TransactionalConsumerContext<Tx> extends ConsumerContext {
  /** The open transaction in which the inbox has recorded the event. It commits when the handler returns. */
  readonly tx: Tx;
}

/** What all consumers have in common. */
export interface CommonConsumerOptions {
  /**
   * How often, and with which delays, a failed handler is called again before the message is handed over as a dead letter. Later
   * messages of its key wait meanwhile. `throw new Reject(...)` hands it over at once. Default `{ baseMs: 100, capMs: 5_000,
   * attemptsMax: 5 }`: about a second and a half at most. For webhooks one attempt:
   * the sender retries.
   */
  retry?: RetryPolicy;
  /** How many events are processed at once, from 1 to 10,000. Events of one key are processed one after the other. Default 16. */
  inFlightMax?: number;
  /**
   * Milliseconds for one call of the handler, with an asynchronous schema of `events` before it, from 1 to 3,600,000. Then `ctx.signal`
   * is aborted and the attempt has failed. With `transactional` the attempt ends when the handler returns, because its transaction must
   * not be used by another one before. Default 30,000; for webhooks 8,000.
   */
  timeoutMs?: number;
  /**
   * Milliseconds that `stop()` waits for handlers and dead letters in flight, from 0 to 3,600,000. Then their `ctx.signal` is aborted
   * and the broker delivers their messages again. The platform has to give the process 20 seconds more than this. Default 10,000, as for a relay.
   */
  stopTimeoutMs?: number;
  /**
   * Report events whose position in the log repeats or goes back within their key (`event.seq`), as lifecycle event `sequence` and in
   * `stats()`. They are processed all the same. It remembers the last 10,000 keys. Default `false`.
   */
  checkSequence?: boolean;
  /** Receives the log. A pino logger fits. `false`: nowhere. Default: warnings and errors on standard error, as JSON. */
  logger?: Logger | false;
}

/** The handler, and whether each event is processed once. */
export type Handling<Tx, Event> =
  | {
      /** Records each event, so that a redelivery is skipped: `inbox.consumer('billing')`. Default: every delivery is processed. */
      inbox?: InboxConsumer<Tx>;
      transactional?: false;
      /** Called for each event. What it throws is a failed attempt. */
      handle(event: Event, context: ConsumerContext): unknown;
    }
  | {
      inbox: InboxConsumer<Tx>;
      /**
       * Call the handler in the transaction that records the event, as `ctx.tx`: the effect of each event in this database happens once.
       * Without it the record is written around the handler, and the effect happens at least once. Default `false`.
       */
      transactional: true;
      handle(event: Event, context: TransactionalConsumerContext<Tx>): unknown;
    };

/** How payloads are read. */
export interface Reading<Catalogue extends EventCatalogue> {
  /**
   * The catalogue of the emitter, made by `defineEvents`: the handler gets its types, checked and in the newest version. Events of types
   * that it does not list are acknowledged without a call of the handler. Default: events as they were emitted.
   */
  events?: Catalogue;
  /**
   * What to do with an event whose version is newer than the catalogue's: `deadLetter`; `retry`, which holds it and the later ones of its
   * key back until a consumer with a newer catalogue is deployed; or `deliver`, as it was emitted, unchecked. Default `deadLetter`, other
   * than for a relay: a relay puts the event back into its queue, but here it is one of `inFlightMax`, so a few of them stop the consumer.
   */
  unknownVersions?: UnknownVersions;
}

export type ConsumerOptions<Tx, Catalogue extends EventCatalogue = EventCatalogue> = CommonConsumerOptions &
  Reading<Catalogue> &
  Handling<Tx, EventToConsume<NoInfer<Catalogue>>>;

export interface ResolvedConsumerOptions {
  readonly handle: (event: never, context: never) => unknown;
  readonly inbox: InboxConsumer<unknown> | undefined;
  readonly transactional: boolean;
  readonly events: EventCatalogue | undefined;
  readonly unknownVersions: UnknownVersions;
  readonly retry: ResolvedRetry;
  readonly inFlightMax: number;
  readonly timeoutMs: number;
  readonly stopTimeoutMs: number;
  readonly checkSequence: boolean;
  readonly logger: Logger;
}

const commonOptions = [
  'handle',
  'inbox',
  'transactional',
  'events',
  'unknownVersions',
  'retry',
  'inFlightMax',
  'timeoutMs',
  'stopTimeoutMs',
  'checkSequence',
  'logger',
];

const hourMs = 3_600_000;

/** Checks the options that all consumers have. `own`: the names of the others. */
export function resolveConsumerOptions(
  factory: string,
  given: object,
  own: readonly string[],
  defaults: { retry?: RetryPolicy; timeoutMs?: number } = {},
): ResolvedConsumerOptions {
  const { fail, whole, flag } = readConsumerOptions(factory, given, own);
  const options = given as ConsumerOptions<unknown>;
  if (typeof options.handle !== 'function') throw fail('handle must be a function of the event.');
  const { inbox } = options;
  if (inbox !== undefined && typeof inbox?.transaction !== 'function') {
    throw fail("inbox must be the inbox of one consumer: createInbox({ db }).consumer('billing').");
  }
  const transactional = flag('transactional', false);
  if (transactional && inbox === undefined) throw fail('transactional needs inbox.');
  requireCatalogue(options.events, factory);
  const { unknownVersions = 'deadLetter' } = options;
  if (!['retry', 'deadLetter', 'deliver'].includes(unknownVersions)) {
    throw fail(`unknownVersions must be 'deadLetter', 'retry' or 'deliver'.`);
  }
  const base = { baseMs: 100, capMs: 5_000, attemptsMax: 5 };
  return {
    handle: options.handle as ResolvedConsumerOptions['handle'],
    inbox,
    transactional,
    events: options.events,
    unknownVersions,
    retry: resolveRetry(options.retry ?? defaults.retry ?? {}, { base }),
    inFlightMax: whole('inFlightMax', 16, 1, 10_000),
    timeoutMs: whole('timeoutMs', defaults.timeoutMs ?? 30_000, 1, hourMs),
    stopTimeoutMs: whole('stopTimeoutMs', 10_000, 0, hourMs),
    checkSequence: flag('checkSequence', false),
    logger: resolveLogger(options.logger, fail),
  };
}

/** Reads the options of one consumer, and refuses what neither it nor all consumers have. */
export function readConsumerOptions(
  factory: string,
  given: object,
  own: readonly string[],
): OptionReader<Record<string, unknown>> {
  return readOptions(factory, given as Record<string, unknown>, [...own, ...commonOptions]);
}
