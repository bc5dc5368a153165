import { PostcommitError } from '../../errors.ts';
import { errorText } from '../../telemetry/error-text.ts';
import { DeliveredEvent } from '../../wire/delivered-event.ts';
import type { ClaimedEvent } from '../event/claimed-event.ts';
import { type EventOutcome, failedEvent, type NamedOutcome, rejectedEvent, toTargetError } from '../event/outcome.ts';
import { suspicionOf } from '../event/suspicion.ts';
import type { Destination } from './destinations/destination.ts';
import type { Leg } from './destinations/leg.ts';
import type { HandlerIndex } from './handler-index.ts';
import type { LimitedHandler, ResolvedHandler } from './handler-options.ts';
import { handlerTarget, isLimited } from './handler-options.ts';
import type { RouteFunction } from './router.ts';
import { Router } from './router.ts';

/** The targets of an event, and the outcomes of those that this relay cannot serve. */
export interface TargetPlan {
  event: DeliveredEvent;
  handlers: readonly ResolvedHandler[];
  legs: readonly Leg[];
  unserved: readonly NamedOutcome[];
}

/** Where an event goes; or its outcome, if that is decided without a delivery. */
export type Plan = TargetPlan | { outcome: EventOutcome };

/** An event with its plan, once it has one. */
export interface PlannedEvent extends ClaimedEvent {
  plan?: Plan | undefined;
}

export interface PlannerOptions {
  handlers: Pick<HandlerIndex, 'of' | 'all'>;
  destinations: ReadonlyMap<string, Destination>;
  route: RouteFunction | undefined;
  noHandler: 'retry' | 'fail';
}

const noLegs: readonly Leg[] = [];
const allServed: readonly NamedOutcome[] = [];

/** Decides where each event goes: which handlers its type has, and which destinations `route` names. */
export class Planner {
  readonly #options: PlannerOptions;
  readonly #router: Router | undefined;

  constructor(options: PlannerOptions) {
    this.#options = options;
    const destinations = [...options.destinations.keys()];
    this.#router = destinations.length > 0 ? new Router(options.route, destinations) : undefined;
  }

  /**
   * Whether the plan decides when an event may start. If not, the event is planned when it starts: until then, only the
   * claimed row is kept in memory.
   */
  get plansAhead(): boolean {
    return this.#router !== undefined;
  }

  /** Sets the plan of an event. It has none while its payload is not loaded. */
  plan(claimed: PlannedEvent): void {
    claimed.plan ??= this.#withoutDelivery(claimed) ?? this.#planFor(claimed);
  }

  /** Whether the delivery occupies the process. One that only goes to destinations does not: they have their own limits. */
  takesSlot({ plan, done }: PlannedEvent): boolean {
    if (plan === undefined || 'outcome' in plan || plan.legs.length === 0) return true;
    // By the remaining targets, as in `#soleDestination`: events of one run must wait in one queue.
    return plan.handlers.some(({ name }) => !done.includes(name));
  }

  /** How many events of a key may be in flight at once, if `next` follows `previous`. */
  runMax(previous: PlannedEvent, next: PlannedEvent): number {
    const destination = this.#soleDestination(previous);
    return destination !== undefined && destination === this.#soleDestination(next) ? destination.runMax : 1;
  }

  /**
   * The handler with limits that is the only target left of an event, as far as that is known before the event is planned.
   * Other targets do not wait for it: the deliverer releases the event for that handler alone.
   */
  get limitedHandlerOf(): ((event: PlannedEvent) => LimitedHandler | undefined) | undefined {
    if (!this.#options.handlers.all.some(isLimited)) return undefined;
    return (event) => {
      const handler = this.#soleHandler(event);
      return handler && isLimited(handler) ? handler : undefined;
    };
  }

  #soleHandler(claimed: PlannedEvent): ResolvedHandler | undefined {
    const { type, plan, done, owed } = claimed;
    if (claimed.id === '' || suspicionOf(claimed) !== undefined) return undefined;
    if (plan !== undefined) {
      if ('outcome' in plan || plan.unserved.length > 0) return undefined;
      if (plan.legs.some(({ target }) => !done.includes(target))) return undefined;
    } else if (this.#router && (owed.length === 0 || owed.some((target) => !target.includes(':')))) {
      return undefined;
    }
    const handlers = plan?.handlers ?? this.#options.handlers.of(type);
    const open = handlers.filter(
      ({ name, target }) => !done.includes(name) && (owed.length === 0 || owed.includes(target)),
    );
    return open.length === 1 ? open[0] : undefined;
  }

  /** Before `route` is called: the route may have ended the relays that owned this event before. */
  #withoutDelivery(claimed: ClaimedEvent): Plan | undefined {
    const { done } = claimed;
    if (claimed.unreadable !== undefined) {
      const why = `PostgreSQL says: ${errorText(claimed.unreadable)}`;
      return { outcome: rejectedEvent(done, new PostcommitError('POSTCOMMIT_E_EVENT_UNREADABLE', why)) };
    }
    if (claimed.id === '') {
      const error = new PostcommitError(
        'POSTCOMMIT_E_NOT_FOUND',
        'The event was deleted from outbox_events before it was delivered.',
      );
      return { outcome: rejectedEvent(done, error) };
    }
    const suspicion = suspicionOf(claimed);
    if (suspicion === undefined) return undefined;
    if (suspicion.isFinal) return { outcome: rejectedEvent(done, suspicion.error, 'crashed') };
    return { outcome: { kind: 'failed', done, errors: [toTargetError(null, suspicion.error)], isUntried: true } };
  }

  #planFor(claimed: ClaimedEvent): Plan | undefined {
    if (claimed.payloadJson === undefined) return undefined;
    const event = new DeliveredEvent(claimed, claimed.payloadJson);
    const handlers = this.#options.handlers.of(claimed.type);
    try {
      const legs = this.#router ? this.#router.legs(event) : noLegs;
      if (claimed.owed.length > 0) return this.#asOwed(claimed, { event, handlers, legs, unserved: allServed });
      if (handlers.length + legs.length === 0 && claimed.done.length === 0) return this.#withoutTarget(claimed);
      return { event, handlers, legs, unserved: allServed };
    } catch (error) {
      return { outcome: failedEvent(claimed.done, error) };
    }
  }

  /**
   * The relay that tried an event first decided where it goes, and this relay delivers it to exactly those targets. Not to
   * more, because while it was on the shelf later events of its key may have reached the other targets of this relay.
   *
   * A destination that this relay lacks is treated as one that is down: the event is delivered to its other targets and then
   * waits on the shelf for a relay that has it. A handler that it lacks leaves the event in the queue. A destination that it
   * has, but that `route` no longer names, is an error: it is not known how to send the event there, and leaving it out would
   * lose it.
   */
  #asOwed(claimed: ClaimedEvent, { event, handlers, legs }: TargetPlan): Plan {
    const owed = new Set(claimed.owed);
    const ownHandlers = handlers.filter(({ target }) => owed.has(target));
    const ownLegs = legs.filter(({ target, to }) => owed.has(to) && !claimed.done.includes(target));
    for (const { target } of ownHandlers) owed.delete(target);
    // A target that already has the event is not owed it, whatever the row contains.
    // A handler of a pattern is in both under its target's name.
    for (const name of claimed.done) owed.delete(name.includes('*') ? name : handlerTarget(claimed.type, name));
    for (const { to } of legs) owed.delete(to);
    const unserved = Array.from(owed, (target) => this.#unserved(target));
    if (ownHandlers.length + ownLegs.length + unserved.length + claimed.done.length === 0) {
      return this.#withoutTarget(claimed);
    }
    return { event, handlers: ownHandlers, legs: ownLegs, unserved };
  }

  #unserved(target: string): NamedOutcome {
    const named = { target, owedAs: target };
    if (target.includes(':')) return { ...named, outcome: { kind: 'released', isForeign: true } };
    if (!this.#options.destinations.has(target)) return { ...named, outcome: { kind: 'unavailable' } };
    const error = new PostcommitError('POSTCOMMIT_E_OWED_NOT_ROUTED', `The destination is '${target}'.`);
    return { ...named, outcome: { kind: 'failed', error } };
  }

  #withoutTarget({ type, done }: ClaimedEvent): Plan {
    const error = new PostcommitError('POSTCOMMIT_E_NO_HANDLER', `The type is ${type}.`);
    const isFinal = this.#options.noHandler === 'fail';
    return { outcome: isFinal ? rejectedEvent(done, error, 'no_handler') : failedEvent(done, error) };
  }

  /** The destination that is the only target left of an event. */
  #soleDestination({ plan, done, shelved }: PlannedEvent): Destination | undefined {
    if (shelved.length > 0) return undefined;
    if (plan === undefined || 'outcome' in plan || plan.unserved.length > 0) return undefined;
    if (done.length === 0 && plan.handlers.length + plan.legs.length !== 1) return undefined;
    if (plan.handlers.some(({ name }) => !done.includes(name))) return undefined;
    const legs = done.length === 0 ? plan.legs : plan.legs.filter(({ target }) => !done.includes(target));
    return legs.length === 1 ? this.#options.destinations.get((legs[0] as Leg).to) : undefined;
  }
}
