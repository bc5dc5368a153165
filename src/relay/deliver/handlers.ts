import type pg from 'pg';
import type { EventCatalogue, EventTypeOf, PayloadOutput, SchemaOf } from '../../catalogue/catalogue.ts';
import type { DeliveredEvent } from '../../wire/delivered-event.ts';
import type { RetryPolicy } from '../event/retry-policy.ts';

/** What a handler gets besides the event. */
export interface HandlerContext {
  /**
   * Aborted when the handler takes longer than its time limit, an operator cancels the event, the relay stops and has waited
   * `stopTimeoutMs`, or its lease is lost. The reason has the code POSTCOMMIT_E_DELIVER_TIMEOUT, POSTCOMMIT_E_EVENT_CANCELLED,
   * POSTCOMMIT_E_RELAY_STOPPING or POSTCOMMIT_E_LEASE_LOST.
   */
  readonly signal: AbortSignal;
  /** 1 for the first try. */
  readonly attempt: number;
  /**
   * The same for every attempt of this handler with this event, replays included (`event.replayId` distinguishes these). Pass
   * it to the system that deduplicates.
   */
  readonly idempotencyKey: string;
  /** The handler's own name; `pattern:name` for a handler of a pattern. */
  readonly handler: string;
  /**
   * Reports how far this call is, for operators: a fraction from 0 to 1, and a note of at most 500 characters (a longer one is
   * cut). `postcommit status`, `postcommit events <id>` and `outbox.admin` show the last report. Costs next to nothing: a
   * relay writes the reports of all its handlers together, at most once a second. Without effect once the call has ended.
   * For example `ctx.progress(0.4, 'page 4 of 10')`.
   */
  progress(fraction: number, note?: string): void;
  /**
   * Gives this call more time: its time limit ends in `ms` from now, or when it would have ended anyway, whichever is later.
   * At most 86,400,000 (a day) per call; call it again for longer work. Without effect once the limit is over or the relay
   * has abandoned the call.
   */
  extendTimeout(ms: number): void;
  /**
   * A `pg` client in the transaction in which the event is settled. Only for a handler with `transactional: true`; for any other,
   * and after it has returned, reading it throws POSTCOMMIT_E_NO_HANDLER_TRANSACTION, and a client that was kept refuses statements
   * with that code. Leave COMMIT and ROLLBACK to the relay. `outbox.emit(ctx.tx, …)` emits in it.
   */
  readonly tx: pg.ClientBase;
}

/**
 * Handles an event. Returning means `delivered`; throwing means `failed`, and the relay retries; `throw new Reject(…)` means
 * `rejected`, and the event becomes a dead letter.
 * It may be called again with the same event (at least once), so it should be idempotent.
 */
// biome-ignore lint/suspicious/noExplicitAny: a handler names its own payload type; the relay cannot know it.
export type Handler<Payload = any, Event = DeliveredEvent<Payload>> = (event: Event, ctx: HandlerContext) => unknown;

/** How the relay treats one handler. What is left out is as the relay's options say. */
export interface HandlerPolicy {
  /**
   * Call it in the transaction in which the event is settled, `ctx.tx`: what it writes there and the delivery of its event commit
   * together or not at all, so its effects in the outbox's own database happen exactly once.
   *
   * Each call has a connection of its own, as the relay's role. On the server, each statement, and each pause between two, is
   * limited to `timeoutMs`, or to what the role or the server sets if that is less; `extendTimeout` does not extend that, `set
   * local statement_timeout` does. Default `false`.
   */
  transactional?: boolean;
  /** A call that takes longer is aborted and counts as failed. Default: the relay's `deliverTimeoutMs`. */
  timeoutMs?: number;
  /**
   * When to try again after a failure, and how often. Fields that an exponential policy leaves out are the relay's. Default:
   * the relay's `retry`.
   */
  retry?: RetryPolicy;
  /**
   * Calls of this handler at once in this relay. Other handlers do not wait for it: its events wait outside of the relay's
   * `inFlightMax`, and return to the queue for a while when they fill a quarter of the buffer. Default: no limit but the relay's;
   * 10 for a transactional handler, whose calls have a connection each.
   */
  inFlightMax?: number;
  /**
   * Calls of this handler per second in this relay, from 0.001; up to a tenth of a second's calls start at once. The events
   * beyond wait as for `inFlightMax`. With several relays each has this rate. Default: no limit.
   */
  rateMax?: number;
}

/** A handler with a policy of its own. */
// biome-ignore lint/suspicious/noExplicitAny: as for Handler.
export interface HandlerWithPolicy<Payload = any, Event = DeliveredEvent<Payload>> extends HandlerPolicy {
  handle: Handler<Payload, Event>;
  handleBatch?: never;
}

/** What a batch handler gets besides the events. */
export type BatchContext = Pick<HandlerContext, 'signal' | 'handler'>;

/** What a batch handler did with one event, in the words of `Handler`. */
export type BatchOutcome = { kind: 'delivered' } | { kind: 'failed' | 'rejected'; error: unknown };

/**
 * Handles several events in one call, for targets that want them in bulk. Returning nothing means that all are delivered, a list
 * has the outcome of each event, in the order of the events. Throwing means that all have failed.
 *
 * The events of a batch are of different aggregates, so their order does not matter. An event that has failed before is handled
 * alone. A batch takes one of the relay's `inFlightMax`; `inFlightMax` and `rateMax` of the handler count batches.
 */
// biome-ignore lint/suspicious/noExplicitAny: as for Handler.
export interface BatchHandler<Payload = any, Event = DeliveredEvent<Payload>> extends HandlerPolicy {
  handleBatch: (
    events: readonly Event[],
    ctx: BatchContext,
    // biome-ignore lint/suspicious/noConfusingVoidType: a function that returns nothing.
  ) => readonly BatchOutcome[] | void | Promise<readonly BatchOutcome[] | void>;
  /** Events per call. Default 100. */
  batchSizeMax?: number;
  /**
   * How long the first event of a batch waits for others. Events that have other targets too do not wait. 0: as many as are there.
   * Default 20.
   */
  batchWaitMs?: number;
  transactional?: never;
  handle?: never;
}

/**
 * Handlers by event type, each with a name of its own. Progress is kept by that name, so keep it stable. A type that ends with
 * `*` is a pattern: `order.*` is for every type that begins with `order.`, `*` for every type. An event goes to the handlers of
 * its type and of each pattern that matches.
 */
export type Handlers = Readonly<Record<string, NamedHandlers>>;

/** The handlers of one event type or pattern, by name. */
// biome-ignore lint/suspicious/noExplicitAny: as for Handler.
type NamedHandlers<Event = DeliveredEvent<any>> = Readonly<
  Record<string, Handler<never, Event> | HandlerWithPolicy<never, Event> | BatchHandler<never, Event>>
>;

/**
 * Handlers for the events of a catalogue: by its types, or by patterns that end with `.*` or are `*`. Each sees the output type of the
 * schema; a handler of a pattern sees the union of the types that match. Without a catalogue: any handlers.
 */
export type HandlersOf<Catalogue extends EventCatalogue> = string extends keyof Catalogue
  ? Handlers
  : {
      readonly [Key in EventTypeOf<Catalogue> | '*' | PatternOf<EventTypeOf<Catalogue>>]?: NamedHandlers<
        EventToHandle<Catalogue, Key>
      >;
    };

/** `a.*` and `a.b.*` for `a.b.c`. */
type PatternOf<Type extends string, Prefix extends string = ''> = Type extends `${infer Head}.${infer Rest}`
  ? `${Prefix}${Head}.*` | PatternOf<Rest, `${Prefix}${Head}.`>
  : never;

/** The event that a handler of this type or pattern gets. */
export type EventToHandle<Catalogue extends EventCatalogue, Key extends string> = Key extends `${infer Prefix}*`
  ? EventOfType<Catalogue, Extract<EventTypeOf<Catalogue>, `${Prefix}${string}`>>
  : EventOfType<Catalogue, Key>;

type EventOfType<Catalogue extends EventCatalogue, Type extends string> = {
  [Each in Type]: DeliveredEvent<PayloadOutput<SchemaOf<Catalogue, Each>>, Each>;
}[Type];
