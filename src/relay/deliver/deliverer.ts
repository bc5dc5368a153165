import { PostcommitError } from '../../errors.ts';
import type { ClaimedRow } from '../../outbox/delivering/claim.ts';
import type { DeadReason, TargetError } from '../../outbox/delivering/fail.ts';
import { errorText } from '../../telemetry/error-text.ts';
import { DeliveredEvent } from '../../wire/delivered-event.ts';
import type { ClaimedEvent } from '../dispatch/dispatcher.ts';
import { IndexedSet } from '../dispatch/indexed-set.ts';
import { suspicionOf } from '../dispatch/suspicion.ts';
import { handlerTarget } from '../lease/relay-identity.ts';
import type { Destination } from './destinations/destination.ts';
import type { SendResult } from './destinations/send-result.ts';
import { HandlerCall } from './handler-call.ts';
import type { Handler } from './handlers.ts';
import { isReject } from './handlers.ts';
import type { Leg, RouteFunction } from './router.ts';
import { Router } from './router.ts';

/** What came of one delivery, all of its targets taken together. */
export type Outcome =
  | { kind: 'ok'; targets: readonly string[] }
  /** `isUntried`: it was not delivered this time, so that nothing new is known of it. */
  | ({
      kind: 'retry';
      done: readonly string[];
      errors: TargetError[];
      retryAfterMs?: number;
      isUntried?: boolean;
    } & Owing)
  | ({ kind: 'reject'; reason: DeadReason; done: readonly string[]; errors: TargetError[] } & Owing)
  /** All that is left are destinations that are away: it waits for these, and no attempt counts. */
  | { kind: 'shelve'; done: readonly string[]; waitsFor: readonly string[] }
  /** Not the event's fault: it goes back and no attempt counts. */
  | ({ kind: 'release'; done: readonly string[]; delayMs?: number } & Owing);

interface Owing {
  /** Targets it must still reach, so that no relay settles it without them. Without it, what was owed stays. */
  owed?: readonly string[];
}

/** Where an event goes: handlers by name, destinations, and what came of targets that this relay cannot serve. */
export type Plan =
  | { event: DeliveredEvent; handlers: NamedHandlers; legs: readonly Leg[]; unserved: readonly TargetResult[] }
  | { error: unknown };

type NamedHandlers = readonly (readonly [name: string, handler: Handler])[];

export interface DelivererOptions {
  handlers: ReadonlyMap<string, NamedHandlers>;
  destinations: ReadonlyMap<string, Destination>;
  route: RouteFunction | undefined;
  deliverTimeoutMs: number;
  noHandler: 'retry' | 'fail';
}

const noHandlers: NamedHandlers = [];
const noLegs: readonly Leg[] = [];
const allServed: readonly TargetResult[] = [];
/** How long an event waits for a relay that has the target it is owed to, when this one got nowhere with it. */
const elsewhereMs = 1_000;

/** How often deliveries are checked against their time limit, at the most. */
const sweepMsMax = 250;

/**
 * Brings one event to its targets, and answers through a callback exactly once: every failure is an outcome, nothing is
 * thrown. Callbacks instead of promises, and one sweep for all time limits instead of a timer each, because this is the
 * hot path and garbage is what it costs most.
 */
export class Deliverer {
  readonly #options: DelivererOptions;
  readonly #calls = new IndexedSet<HandlerCall>();
  readonly #router: Router | undefined;
  /** For events that went to one target only: one list for all of them. */
  readonly #soleTargets = new Map<string, readonly string[]>();
  #sweeper: NodeJS.Timeout | undefined;

  constructor(options: DelivererOptions) {
    this.#options = options;
    const destinations = [...options.destinations.keys()];
    this.#router = destinations.length > 0 ? new Router(options.route, destinations) : undefined;
  }

  /** Whether the delivery occupies the process: not if it only goes to destinations, which have limits of their own. */
  takesSlot(claimed: ClaimedEvent): boolean {
    if (!this.#router) return true;
    const plan = this.#planOf(claimed);
    if (!plan || 'error' in plan || plan.legs.length === 0) return true;
    // By what is left, as `#soleDestination`: events of one run must wait in one line.
    return plan.handlers.some(([name]) => !claimed.done.includes(name));
  }

  /** How many events of a key may be under way at once, if `next` follows `previous`. */
  runMax(previous: ClaimedEvent, next: ClaimedEvent): number {
    const one = this.#soleDestination(previous);
    return one !== undefined && one === this.#soleDestination(next) ? one.runMax : 1;
  }

  deliver(claimed: ClaimedEvent, done: (outcome: Outcome) => void): void {
    if (claimed.unreadable !== undefined) {
      const why = `PostgreSQL says: ${errorText(claimed.unreadable)}`;
      done(rejected(claimed, new PostcommitError('POSTCOMMIT_E_EVENT_UNREADABLE', why)));
      return;
    }
    if (claimed.id === '') {
      done(rejected(claimed, new PostcommitError('POSTCOMMIT_E_NOT_FOUND', 'It was deleted from outbox_events.')));
      return;
    }
    const suspicion = suspicionOf(claimed);
    if (suspicion) {
      const errors = [toTargetError(null, suspicion.error)];
      if (suspicion.isFinal) done({ kind: 'reject', reason: 'crashed', done: claimed.done, errors });
      else done({ kind: 'retry', done: claimed.done, errors, isUntried: true });
      return;
    }
    const plan = this.#planOf(claimed);
    if (plan) this.#follow(claimed, plan, done);
    else done({ kind: 'release', done: claimed.done }); // The payload was dropped before the delivery began.
  }

  /** Gives up all deliveries under way. Those that still finish count; the others go back without an attempt. */
  abandon(reason: Error): void {
    for (const call of this.#calls.items()) call.abandon(reason);
    for (const destination of this.#options.destinations.values()) destination.abandon(reason);
  }

  #planOf(claimed: ClaimedEvent): Plan | undefined {
    // Nothing is planned for an event that is not to be delivered: `route` may be what ended the relays before.
    if (claimed.plan === undefined && claimed.id !== '' && claimed.payloadJson !== undefined && !suspicionOf(claimed)) {
      claimed.plan = this.#makePlan(claimed, claimed.payloadJson);
    }
    return claimed.plan;
  }

  #makePlan(claimed: ClaimedEvent, payloadJson: string): Plan {
    const event = new DeliveredEvent(claimed, payloadJson);
    const handlers = this.#options.handlers.get(claimed.type) ?? noHandlers;
    try {
      const legs = this.#router ? this.#router.legs(event) : noLegs;
      if (claimed.owed.length === 0) return { event, handlers, legs, unserved: allServed };
      return { event, ...this.#asOwed(claimed, handlers, legs) };
    } catch (error) {
      return { error };
    }
  }

  /**
   * Where an event goes was decided by the relay that tried it first: neither more nor less. Not more, because while it was
   * on the shelf later events of its key may have reached whatever this relay has besides.
   *
   * A destination that this relay lacks is as one that is down: the event gets to its other targets and then waits on the
   * shelf for a relay that has it. A handler that it lacks leaves the event in the queue. A destination that it has, and
   * that `route` no longer names, is an error: how it should be sent there is not known, and to leave it out would lose it.
   */
  #asOwed(
    claimed: ClaimedEvent,
    handlers: NamedHandlers,
    legs: readonly Leg[],
  ): Omit<Exclude<Plan, { error: unknown }>, 'event'> {
    const owed = new Set(claimed.owed);
    const ownHandlers = handlers.filter(([name]) => owed.has(handlerTarget(claimed.type, name)));
    const ownLegs = legs.filter(({ target, to }) => owed.has(to) && !claimed.done.includes(target));
    for (const [name] of ownHandlers) owed.delete(handlerTarget(claimed.type, name));
    // What has the event already is not owed it, whatever the row says.
    for (const name of claimed.done) owed.delete(handlerTarget(claimed.type, name));
    for (const { to } of legs) owed.delete(to);
    return { handlers: ownHandlers, legs: ownLegs, unserved: [...owed].map((target) => this.#unserved(target)) };
  }

  #unserved(target: string): TargetResult {
    if (target.includes(':')) return { target, owedAs: target, kind: 'elsewhere' };
    if (!this.#options.destinations.has(target)) return { target, owedAs: target, kind: 'waits' };
    const error = new PostcommitError('POSTCOMMIT_E_OWED_NOT_ROUTED', `The destination is '${target}'.`);
    return { target, owedAs: target, kind: 'retry', error };
  }

  /** The destination that is all an event goes to, if nothing else is to be minded. */
  #soleDestination(claimed: ClaimedEvent): Destination | undefined {
    if (claimed.shelved.length > 0) return undefined;
    const plan = this.#planOf(claimed);
    if (!plan || 'error' in plan || plan.unserved.length > 0) return undefined;
    const { done } = claimed;
    if (done.length === 0 && plan.handlers.length + plan.legs.length !== 1) return undefined;
    if (plan.handlers.some(([name]) => !done.includes(name))) return undefined;
    const legs = done.length === 0 ? plan.legs : plan.legs.filter(({ target }) => !done.includes(target));
    return legs.length === 1 ? this.#options.destinations.get((legs[0] as Leg).to) : undefined;
  }

  #follow(claimed: ClaimedEvent, plan: Plan, done: (outcome: Outcome) => void): void {
    if ('error' in plan) {
      done({ kind: 'retry', done: claimed.done, errors: [toTargetError(null, plan.error)] });
      return;
    }
    const { event, handlers, legs, unserved } = plan;
    const count = handlers.length + legs.length + unserved.length;
    if (count === 0 && claimed.done.length === 0) {
      done(this.#withoutHandler(claimed));
    } else if (count === 1 && unserved.length === 0 && claimed.done.length === 0) {
      const settle = (result: TargetResult) =>
        done(result.kind === 'ok' ? this.#soleTarget(result.target) : toOutcome(claimed, [result]));
      const handler = handlers[0];
      if (handler) this.#call(event, claimed, handler, settle);
      else this.#send(event, claimed, legs[0] as Leg, settle);
    } else {
      this.#toTargets(claimed, plan, done);
    }
  }

  #toTargets(
    claimed: ClaimedEvent,
    { event, handlers, legs, unserved }: Exclude<Plan, { error: unknown }>,
    done: (outcome: Outcome) => void,
  ): void {
    const openHandlers = handlers.filter(([name]) => !claimed.done.includes(name));
    const openLegs = legs.filter(({ target }) => !claimed.done.includes(target));
    const count = openHandlers.length + openLegs.length + unserved.length;
    const results: TargetResult[] = [...unserved];
    if (results.length === count) {
      done(toOutcome(claimed, results));
      return;
    }
    const settle = (result: TargetResult) => {
      results.push(result);
      if (results.length === count) done(toOutcome(claimed, results));
    };
    for (const leg of openLegs) this.#send(event, claimed, leg, settle);
    for (const handler of openHandlers) {
      // An event of its own for each: what one handler changes is no business of the others.
      this.#call(new DeliveredEvent(claimed, event.payloadJson), claimed, handler, settle);
    }
  }

  #soleTarget(target: string): Outcome {
    let targets = this.#soleTargets.get(target);
    if (targets === undefined) {
      targets = [target];
      // Handlers and destinations are few; a second topic of a destination makes a name of its own, and may be any.
      if (this.#soleTargets.size < 1_000) this.#soleTargets.set(target, targets);
    }
    return { kind: 'ok', targets };
  }

  #send(event: DeliveredEvent, claimed: ClaimedEvent, leg: Leg, done: (result: TargetResult) => void): void {
    const { target, to } = leg;
    const destination = this.#options.destinations.get(to) as Destination;
    if (claimed.shelved.includes(to)) done({ target, owedAs: to, kind: 'waits' });
    else destination.send(event, leg, claimed.key, (result) => done({ target, owedAs: to, ...result }));
  }

  #call(
    event: DeliveredEvent,
    claimed: ClaimedEvent,
    [name, handler]: readonly [string, Handler],
    done: (result: TargetResult) => void,
  ): void {
    const call = new HandlerCall(claimed, name, this.#options.deliverTimeoutMs, (ended) => {
      this.#calls.delete(ended);
      done(toResult(ended, handlerTarget(claimed.type, name)));
    });
    this.#calls.add(call);
    this.#sweep();
    call.run(event, handler);
  }

  #sweep(): void {
    if (this.#sweeper !== undefined) return;
    this.#sweeper = setTimeout(
      () => {
        this.#sweeper = undefined;
        const now = performance.now();
        for (const call of this.#calls.items()) call.checkTime(now);
        if (this.#calls.size > 0) this.#sweep();
      },
      Math.min(sweepMsMax, this.#options.deliverTimeoutMs),
    );
  }

  #withoutHandler(row: ClaimedRow): Outcome {
    const error = new PostcommitError('POSTCOMMIT_E_NO_HANDLER', `The type is ${row.type}.`);
    if (this.#options.noHandler === 'fail') return { ...rejected(row, error), reason: 'no_handler' };
    return { kind: 'retry', done: row.done, errors: [toTargetError(null, error)] };
  }
}

function rejected(row: ClaimedRow, error: PostcommitError) {
  return { kind: 'reject', reason: 'rejected', done: row.done, errors: [toTargetError(null, error)] } satisfies Outcome;
}

/** What came of one target; `owedAs` is what an event that has not reached it owes. `elsewhere`: another relay's handler. */
type TargetResult = { target: string; owedAs: string } & (SendResult | { kind: 'elsewhere' });

function toResult({ handler: target, result, thrown }: HandlerCall, owedAs: string): TargetResult {
  if (result === 'ok') return { target, owedAs, kind: 'ok' };
  if (result !== 'failed') return { target, owedAs, kind: 'released' };
  return { target, owedAs, kind: isReject(thrown) ? 'reject' : 'retry', error: thrown };
}

/** All targets together: one that rejects decides, else one that failed, else one that was given up, else one that waits. */
function toOutcome(claimed: ClaimedEvent, results: readonly TargetResult[]): Outcome {
  const owed = [...new Set(results.flatMap(({ kind, owedAs }) => (kind === 'ok' ? [] : owedAs)))];
  const done = [...claimed.done];
  const rejects: TargetError[] = [];
  const failures: TargetError[] = [];
  const waitsFor: string[] = [];
  let retryAfterMs = 0;
  let delayMs = 0;
  let isReleased = false;
  let isElsewhere = false;
  for (const result of results) {
    if (result.kind === 'ok') done.push(result.target);
    else if (result.kind === 'reject') rejects.push(toTargetError(result.target, result.error));
    else if (result.kind === 'retry') {
      failures.push(toTargetError(result.target, result.error));
      retryAfterMs = Math.max(retryAfterMs, result.retryAfterMs ?? 0);
    } else if (result.kind === 'waits') waitsFor.push(result.owedAs);
    else if (result.kind === 'released') {
      isReleased = true;
      delayMs = Math.max(delayMs, result.delayMs ?? 0);
    } else isElsewhere = true;
  }
  // What decided comes last: that is what a dead letter shows.
  if (rejects.length > 0) return { kind: 'reject', reason: 'rejected', done, errors: [...failures, ...rejects], owed };
  if (failures.length > 0) return { kind: 'retry', done, errors: failures, retryAfterMs, owed };
  if (isReleased) return { kind: 'release', done, owed, ...(delayMs > 0 && { delayMs }) };
  // Not onto the shelf, where later events of its key could pass it at the handler that it is owed to.
  if (isElsewhere)
    return { kind: 'release', done, owed, ...(done.length > claimed.done.length ? {} : { delayMs: elsewhereMs }) };
  if (waitsFor.length > 0) return { kind: 'shelve', done, waitsFor: [...new Set(waitsFor)] };
  return { kind: 'ok', targets: done };
}

function toTargetError(target: string | null, thrown: unknown): TargetError {
  return { target, code: codeOf(thrown), error: errorText(thrown) };
}

function codeOf(thrown: unknown): string {
  try {
    if (thrown instanceof PostcommitError) return thrown.code;
  } catch {
    // A proxy may throw when it is asked.
  }
  return 'POSTCOMMIT_E_HANDLER_FAILED';
}
