import { isStorable, toAscii } from '../../database/storable-text.ts';
import { PostcommitError } from '../../errors.ts';
import type { DeliveredEvent } from '../../wire/delivered-event.ts';
import type { Leg } from './destinations/leg.ts';

/** Where an event goes. */
export interface Route {
  /** The destination's name. */
  to: string;
  /** Where in the broker: topic, routing key, subject, stream, queue, URL. Default: the event's type. */
  topic?: string;
  /** What the broker orders or partitions by. Default: the aggregate's id, or the event's own key; `null` for none. */
  key?: string | null;
  /** Added to the event's own headers. */
  headers?: Readonly<Record<string, string>>;
  /** RabbitMQ only: the exchange, instead of the destination's own. */
  exchange?: string;
}

/**
 * Decides where an event goes: to one destination, to several, or (with `null` or an empty list) to none. It should return
 * the same for an event each time it is called: progress is kept by destination, and by topic where it names several topics of
 * one destination.
 */
// biome-ignore lint/suspicious/noExplicitAny: a route names the payload types it knows; the relay cannot know them.
export type RouteFunction = (event: DeliveredEvent<any>) => Route | readonly Route[] | null | undefined;

/** Calls `route` for an event, and checks what it returns: each mistake is a coded error of this event. */
export class Router {
  readonly #route: RouteFunction;
  readonly #known: ReadonlySet<string>;

  constructor(route: RouteFunction | undefined, destinations: readonly string[]) {
    const all = destinations.map((to) => ({ to }));
    this.#route = route ?? (() => all);
    this.#known = new Set(destinations);
  }

  legs(event: DeliveredEvent): Leg[] {
    const answer = this.#ask(event);
    if (answer instanceof Promise) {
      answer.catch(() => {}); // Its result is not used.
      throw failed('It returned a promise; a route is synchronous.');
    }
    if (answer === null || answer === undefined) return [];
    if (!Array.isArray(answer)) return [this.#leg(answer as Route, event)];
    const legs = (answer as readonly Route[]).map((route) => this.#leg(route, event));
    if (legs.length > 1) nameTargets(legs);
    return legs;
  }

  #ask(event: DeliveredEvent): ReturnType<RouteFunction> {
    try {
      return this.#route(event);
    } catch (error) {
      throw new PostcommitError('POSTCOMMIT_E_ROUTE_FAILED', `It threw: ${String(error)}`, { cause: error });
    }
  }

  #leg(route: Route, event: DeliveredEvent): Leg {
    if (typeof route !== 'object' || route === null || typeof route.to !== 'string') {
      throw failed(`It returned ${shown(route)}, not e.g. { to: 'events', topic: event.type }.`);
    }
    for (const name in route) if (!routeNames.has(name)) throw failed(`The route has the unknown property ${name}.`);
    if (!this.#known.has(route.to)) {
      const known = [...this.#known].join(', ') || 'none';
      throw new PostcommitError('POSTCOMMIT_E_UNKNOWN_DESTINATION', `Got '${route.to}'. Known destinations: ${known}.`);
    }
    const topic = route.topic ?? event.type;
    if (typeof topic !== 'string' || topic === '' || !isStorable(topic)) {
      const needs = 'it must be a text that is not empty, without NUL and lone surrogates';
      throw failed(`The topic is ${shown(topic)}; ${needs}.`);
    }
    const key = route.key === undefined ? event.partitionKey : route.key;
    if (key !== null && !isText(key)) throw failed(`The key is ${shown(key)}, not a text or null.`);
    for (const name in route.headers) {
      const value = route.headers[name];
      if (!isText(value) || !isText(name)) throw failed(`The header ${name} is ${shown(value)}, not a text.`);
    }
    const { exchange } = route;
    if (exchange !== undefined && !isText(exchange)) throw failed(`The exchange is ${shown(exchange)}, not a text.`);
    return { target: route.to, to: route.to, topic, key, headers: route.headers, exchange };
  }
}

/**
 * Several topics of one destination are several targets, each with a name of its own. None of them is named by the
 * destination alone: the next time `route` may return them in another order, or without one of them, and the progress of one
 * topic would count for another. In ASCII, because progress is stored by these names, and the database's encoding may lack
 * characters of the topic.
 */
function nameTargets(legs: readonly Leg[]): void {
  const seen = new Set<string>();
  const repeated = new Set<string>();
  for (const { to } of legs) (seen.has(to) ? repeated : seen).add(to);
  if (repeated.size === 0) return;
  const targets = new Set<string>();
  for (const leg of legs) {
    if (!repeated.has(leg.to)) continue;
    leg.target = `${leg.to}:${toAscii(leg.topic)}`;
    if (targets.has(leg.target)) throw failed(`The route names ${leg.to} with the topic ${leg.topic} twice.`);
    targets.add(leg.target);
  }
}

/** A lone surrogate has no UTF-8: brokers would get another text than the route returned. */
function isText(value: unknown): value is string {
  return typeof value === 'string' && value.isWellFormed();
}

/** A misspelt name would silently be ignored. */
const routeNames = new Set(['to', 'topic', 'key', 'headers', 'exchange']);

function shown(value: unknown): string {
  try {
    return (JSON.stringify(value) ?? String(value)).slice(0, 200);
  } catch {
    return typeof value;
  }
}

function failed(detail: string): PostcommitError {
  return new PostcommitError('POSTCOMMIT_E_ROUTE_FAILED', detail);
}
