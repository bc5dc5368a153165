import { PostcommitError } from '../errors.ts';
import type { InsertableEvent } from '../outbox/emitting/insert.ts';
import type { EventLimits, OutboxEvent } from './event.ts';
import { toInsertable } from './event.ts';

/** What `emit` is given: one event, or several. */
export type GivenEvents = OutboxEvent | readonly OutboxEvent[];

/** An event in another form. It is converted with the check, so what the conversion throws refuses it like any other mistake. */
export class UnconvertedEvent {
  readonly convert: () => OutboxEvent;

  constructor(convert: () => OutboxEvent) {
    this.convert = convert;
  }
}

/** Each id is locked until the commit, and PostgreSQL's lock table is shared by all sessions. */
const emitOnceMax = 1_000;

/** A promise only if a schema is asynchronous, or tracing is still loading: a call that need not wait can send at once. */
export type CheckedEvents = InsertableEvent[] | Promise<InsertableEvent[]>;

/** Checks events and makes them writable. Nothing is sent to the database. */
export async function checkEvents(given: GivenEvents, limits: EventLimits): Promise<InsertableEvent[]> {
  return startCheck(given, limits);
}

/** The same for a caller that sends them at once unless a check has to wait. Throws, or rejects, for a bad event. */
export function startCheck(given: GivenEvents, limits: EventLimits): CheckedEvents {
  const checked: (InsertableEvent | Promise<InsertableEvent>)[] = [];
  try {
    for (const event of listOf(given)) {
      checked.push(toInsertable(event instanceof UnconvertedEvent ? event.convert() : event, limits));
    }
  } catch (error) {
    for (const each of checked) if (each instanceof Promise) each.catch(() => {}); // The call rejects with this error.
    throw error;
  }
  return checked.every((each): each is InsertableEvent => !(each instanceof Promise))
    ? finishCheck(checked, limits)
    : Promise.all(checked).then((events) => finishCheck(events, limits));
}

function finishCheck(events: InsertableEvent[], { metrics }: EventLimits): InsertableEvent[] {
  if (events.length > 1) refuseSameId(events);
  if (metrics)
    for (const { type } of events) metrics.counter('outbox_events_emitted_total', { event_type: type }).value++;
  return events;
}

function refuseSameId(events: readonly InsertableEvent[]): void {
  const ids = new Set(events.map((event) => event.id));
  if (ids.size === events.length) return;
  const twice = events.find(({ id }) => !ids.delete(id));
  throw new PostcommitError('POSTCOMMIT_E_DUPLICATE_ID', `The id ${twice?.id} appears twice in this call.`);
}

/** The same for `emitOnce`, which needs an id for each event. */
export function startCheckWithId(given: GivenEvents, limits: EventLimits): CheckedEvents {
  const list = listOf(given);
  if (list.some((event) => event?.id === undefined)) {
    throw new PostcommitError(
      'POSTCOMMIT_E_BAD_EVENT',
      'emitOnce() needs an id, which recognises the event when the work runs again. Derive a UUID from the work, or use emit().',
    );
  }
  if (list.length > emitOnceMax) {
    throw new PostcommitError(
      'POSTCOMMIT_E_TOO_MANY_EVENTS',
      `emitOnce() takes at most ${emitOnceMax} events in a call. Got ${list.length}.`,
    );
  }
  return startCheck(given, limits);
}

/** One id for one event, a list for a list. */
export function idsOf(given: GivenEvents, events: readonly InsertableEvent[]): string | string[] {
  const ids = events.map((event) => event.id);
  return Array.isArray(given) ? ids : (ids[0] as string);
}

function listOf(given: GivenEvents): readonly OutboxEvent[] {
  return Array.isArray(given) ? (given as readonly OutboxEvent[]) : [given as OutboxEvent];
}
