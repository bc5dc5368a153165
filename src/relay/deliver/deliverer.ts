import { SparseLog } from '../../telemetry/logging.ts';
import { inSpan, isTracing } from '../../telemetry/spans.ts';
import { DeliveredEvent } from '../../wire/delivered-event.ts';

import type { ClaimedEvent } from '../event/claimed-event.ts';
import { ConnectionLosses } from '../event/connection-losses.ts';
import { IndexedSet } from '../event/indexed-set.ts';
import type { EventOutcome, NamedOutcome, TargetOutcome } from '../event/outcome.ts';
import { combine, delivered, released, unavailable } from '../event/outcome.ts';
import { isReject } from '../event/reject.ts';

import type { Destination } from './destinations/destination.ts';
import type { Leg } from './destinations/leg.ts';
import type { EventReader, ReadResult } from './event-reader.ts';
import { type BatchEntry, type HandlerBatch, HandlerBatches } from './handler-batches.ts';
import type { ProgressSink } from './handler-call.ts';
import { HandlerCall } from './handler-call.ts';
import type { ResolvedHandler } from './handler-options.ts';
import { isBatched } from './handler-options.ts';
import { HandlerTransaction, type HandlerTransactionOptions } from './handler-transaction.ts';
import type { Handler } from './handlers.ts';
import type { PlannedEvent, TargetPlan } from './planner.ts';

export interface DelivererOptions {
  destinations: ReadonlyMap<string, Destination>;
  /** The shortest time limit of all handlers. */
  timeoutMsMin: number;
  /** A handler with limits may be called again. */
  onHandlerFree: () => void;
  /** Takes what handlers report about their work. */
  progress: ProgressSink;
  /** Called with the outcome of each target, for metrics. */
  onTargetEnded?: ((owedAs: string, outcome: TargetOutcome['kind'], tookMs: number) => void) | undefined;
  /** Reads events for handlers, with the catalogue. `undefined`: they get events as they were stored. */
  reader?: EventReader | undefined;
  /** For transactional handlers. */
  transactions: HandlerTransactionOptions;
}

/** Called once, with the outcome of one target. Separate arguments instead of an object: this is the hot path. */
type OnTarget = (target: string, owedAs: string, outcome: TargetOutcome) => void;

/** The longest pause between two checks of deliveries against their time limit. */
const timeoutCheckMsMax = 250;
/** Names of targets that share one list for all events that went to that target only. */
const soleTargetsMax = 1_000;

/**
 * Delivers an event to the targets of its plan, and calls back exactly once with the outcome: nothing is thrown. Callbacks
 * instead of promises, and one timer for all time limits, because garbage is the largest cost of this path.
 */
export class Deliverer {
  readonly #options: DelivererOptions;
  readonly #calls = new IndexedSet<HandlerCall>();
  /** The batch of each call that has one. */
  readonly #batchOf = new WeakMap<HandlerCall, HandlerBatch>();
  readonly #batches = new HandlerBatches((batch) => this.#callBatch(batch));
  readonly #losses = new ConnectionLosses();
  readonly #log = new SparseLog();
  readonly #soleTargets = new Map<string, readonly string[]>();
  #timeoutCheck: NodeJS.Timeout | undefined;

  constructor(options: DelivererOptions) {
    this.#options = options;
  }

  deliver(claimed: PlannedEvent, done: (outcome: EventOutcome) => void): void {
    const { plan } = claimed;
    if (plan === undefined)
      done({ kind: 'released', done: claimed.done }); // Its payload was dropped before it started.
    else if ('outcome' in plan) done(plan.outcome);
    else this.#follow(claimed, plan, done);
  }

  /** Aborts all deliveries in flight. Those that still finish count; the others are released. */
  abandon(reason: Error): void {
    this.#batches.abandon();
    for (const call of this.#calls.items()) call.abandon(reason);
    for (const destination of this.#options.destinations.values()) destination.abandon(reason);
  }

  /**
   * Aborts the handlers of a cancelled event; a batch only when all of its events are cancelled, because the others would be handled
   * again beside it. Messages to destinations are on their way.
   */
  abort({ seq }: ClaimedEvent, reason: Error): void {
    for (const call of this.#calls.items()) {
      const batch = this.#batchOf.get(call);
      if (batch ? batch.cancel(seq) : call.seq === seq) call.abandon(reason);
    }
  }

  #follow(claimed: ClaimedEvent, plan: TargetPlan, done: (outcome: EventOutcome) => void): void {
    const { event, handlers, legs, unserved } = plan;
    if (handlers.length + legs.length !== 1 || unserved.length > 0 || claimed.done.length > 0) {
      this.#toTargets(claimed, plan, done);
      return;
    }
    const onTarget: OnTarget = this.#metered((target, owedAs, outcome) => {
      const isShared = outcome.kind === 'delivered' && !outcome.isSettled;
      done(isShared ? this.#soleTarget(target) : combine(claimed.done, [{ target, owedAs, outcome }]));
    });
    const handler = handlers[0];
    if (handler) this.#call(event, claimed, handler, true, onTarget);
    else this.#send(event, claimed, legs[0] as Leg, onTarget);
  }

  #toTargets(
    claimed: ClaimedEvent,
    { event, handlers, legs, unserved }: TargetPlan,
    done: (outcome: EventOutcome) => void,
  ): void {
    const openHandlers = handlers.filter(({ name }) => !claimed.done.includes(name));
    const openLegs = legs.filter(({ target }) => !claimed.done.includes(target));
    const count = openHandlers.length + openLegs.length + unserved.length;
    const outcomes: NamedOutcome[] = [...unserved];
    if (outcomes.length === count) {
      done(combine(claimed.done, outcomes));
      return;
    }
    const onTarget: OnTarget = this.#metered((target, owedAs, outcome) => {
      outcomes.push({ target, owedAs, outcome });
      if (outcomes.length === count) done(combine(claimed.done, outcomes));
    });
    for (const leg of openLegs) this.#send(event, claimed, leg, onTarget);
    for (const handler of openHandlers) {
      // A separate object for each: a handler that changes it does not affect the others.
      this.#call(new DeliveredEvent(claimed, event.payloadJson), claimed, handler, count === 1, onTarget);
    }
  }

  #metered(onTarget: OnTarget): OnTarget {
    const { onTargetEnded } = this.#options;
    if (onTargetEnded === undefined) return onTarget;
    const begunAt = performance.now();
    return (target, owedAs, outcome) => {
      onTargetEnded(owedAs, outcome.kind, performance.now() - begunAt);
      onTarget(target, owedAs, outcome);
    };
  }

  #soleTarget(target: string): EventOutcome {
    let targets = this.#soleTargets.get(target);
    if (targets === undefined) {
      targets = [target];
      // Handlers and destinations are few; a second topic of a destination has a name of its own, and there may be many.
      if (this.#soleTargets.size < soleTargetsMax) this.#soleTargets.set(target, targets);
    }
    return { kind: 'delivered', targets };
  }

  #send(event: DeliveredEvent, { shelved, key }: ClaimedEvent, leg: Leg, onTarget: OnTarget): void {
    const { target, to } = leg;
    const destination = this.#options.destinations.get(to) as Destination;
    if (shelved.includes(to)) onTarget(target, to, unavailable);
    else destination.send(event, leg, key, (outcome) => onTarget(target, to, outcome));
  }

  /** Reads the event for the handler, then calls it. `isLast`: it is the only target that the event has not reached. */
  #call(
    event: DeliveredEvent,
    claimed: ClaimedEvent,
    handler: ResolvedHandler,
    isLast: boolean,
    onTarget: OnTarget,
  ): void {
    const { reader, progress } = this.#options;
    const read = reader === undefined ? event : reader.read(event, claimed);
    if (!(read instanceof Promise)) {
      this.#callWith(read, claimed, handler, isLast, onTarget);
      return;
    }
    // An asynchronous schema has the time limit of the handler, and is abandoned like it.
    let settled: ReadResult = released;
    const reading = new HandlerCall(claimed, handler.name, handler.timeoutMs, progress, (ended) => {
      this.#calls.delete(ended);
      if (ended.result === 'delivered') this.#callWith(settled, claimed, handler, isLast, onTarget);
      else onTarget(handler.name, handler.target, outcomeOf(ended, handler));
    });
    this.#calls.add(reading);
    this.#checkTimeouts();
    const keep = (result: ReadResult) => {
      settled = result;
    };
    reading.run(event, () => read.then(keep));
  }

  #callWith(
    event: ReadResult,
    claimed: ClaimedEvent,
    handler: ResolvedHandler,
    isLast: boolean,
    onTarget: OnTarget,
  ): void {
    const { name, target, timeoutMs, limiter } = handler;
    if (!(event instanceof DeliveredEvent)) {
      onTarget(name, target, event);
      return;
    }
    if (isBatched(handler)) {
      this.#batches.add(handler, { event, claimed, done: (outcome) => onTarget(name, target, outcome) });
      return;
    }
    const now = limiter === undefined ? 0 : performance.now();
    if (limiter !== undefined && limiter.waitMs(now) > 0) {
      onTarget(name, target, { kind: 'released', delayMs: limiter.releaseMs(0, now) });
      return;
    }
    limiter?.begin(now);
    const transaction = handler.connectionsMax === undefined ? undefined : this.#transaction(claimed, name, isLast);
    const call = new HandlerCall(claimed, name, timeoutMs, this.#options.progress, (ended) => {
      this.#calls.delete(ended);
      limiter?.end(performance.now() - now);
      onTarget(name, target, (ended.result === 'delivered' && transaction?.outcome) || outcomeOf(ended, handler));
      if (limiter !== undefined) this.#options.onHandlerFree();
    });
    this.#calls.add(call);
    this.#checkTimeouts();
    const handle = isTracing() ? traced([event], handler, handler.handle) : handler.handle;
    if (transaction === undefined) call.run(event, handle);
    else call.run(event, (_event, ctx) => transaction.run(ctx as HandlerCall, event, timeoutMs, handle));
  }

  #transaction({ seq, key, done }: ClaimedEvent, handler: string, isLast: boolean): HandlerTransaction {
    const targets = isLast ? [...done, handler] : undefined;
    const handled = { seq, handler, targets };
    return new HandlerTransaction(this.#options.transactions, this.#losses, this.#log, handled, key !== null);
  }

  #callBatch(batch: HandlerBatch): void {
    const { handler, entries, openedAt } = batch;
    const { event, claimed } = entries[0] as BatchEntry;
    const call = new HandlerCall(claimed, handler.name, handler.timeoutMs, this.#options.progress, (ended) => {
      this.#calls.delete(ended);
      handler.limiter.end(performance.now() - openedAt);
      const isDelivered = ended.result === 'delivered';
      // What was thrown does not tell which of them can never succeed.
      const forAll =
        ended.result === 'failed' ? { kind: 'failed' as const, error: ended.thrown, retry: handler.retry } : released;
      for (const [index, { done }] of entries.entries()) done((isDelivered && batch.outcomes[index]) || forAll);
      this.#options.onHandlerFree();
    });
    this.#calls.add(call);
    this.#batchOf.set(call, batch);
    this.#checkTimeouts();
    const handle: Handler = (_event, ctx) => batch.call(ctx);
    const events = entries.map((entry) => entry.event);
    call.run(event, isTracing() ? traced(events, handler, handle) : handle);
  }

  #checkTimeouts(): void {
    if (this.#timeoutCheck !== undefined) return;
    this.#timeoutCheck = setTimeout(
      () => {
        this.#timeoutCheck = undefined;
        const now = performance.now();
        for (const call of this.#calls.items()) call.checkTime(now);
        if (this.#calls.size > 0) this.#checkTimeouts();
      },
      Math.min(timeoutCheckMsMax, this.#options.timeoutMsMin),
    );
  }
}

function outcomeOf({ result, thrown }: HandlerCall, { retry }: ResolvedHandler): TargetOutcome {
  if (result === 'delivered') return delivered;
  if (result !== 'failed') return released;
  return isReject(thrown) ? { kind: 'rejected', error: thrown } : { kind: 'failed', error: thrown, retry };
}

/** Calls the handler in a span of the event's trace. */
function traced(events: readonly DeliveredEvent[], { target }: ResolvedHandler, handle: Handler): Handler {
  const type = events.every((event) => event.type === events[0]?.type) ? events[0]?.type : undefined;
  const attributes = { 'messaging.consumer.group.name': target };
  return (event, ctx) =>
    inSpan({ name: 'process', system: 'postcommit', destination: type, attributes }, events, () => handle(event, ctx));
}
