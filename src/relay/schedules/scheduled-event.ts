import { createHash } from 'node:crypto';
import type { EventCatalogue } from '../../catalogue/catalogue.ts';
import type { OutboxEvent } from '../../emit/event.ts';
import { toInsertableNow } from '../../emit/event.ts';
import { PostcommitError } from '../../errors.ts';
import type { InsertableEvent } from '../../outbox/emitting/insert.ts';

/** One time at which a schedule emits. */
export interface ScheduleTick {
  /** The name of the schedule. */
  schedule: string;
  /** When the event is due, not when it is emitted. For a trigger: when it is emitted. */
  at: Date;
  /** Whether an operator triggered it. */
  triggered: boolean;
}

/** An event that a schedule emits: without an id, which derives from schedule and tick. */
export interface ScheduledEvent extends Omit<OutboxEvent, 'id' | 'aggregate'> {
  /** Default `['schedule', <name>]`: the events of a schedule are delivered one after the other. */
  aggregate?: OutboxEvent['aggregate'];
}

export type EventOfTick = ScheduledEvent | ((tick: ScheduleTick) => ScheduledEvent | readonly ScheduledEvent[]);

interface NamedEvent {
  name: string;
  event: EventOfTick;
  /** The catalogue of the relay. */
  events?: EventCatalogue | undefined;
}

const eventsMax = 100;
/** The defaults of an outbox. */
const eventLimits = { queueOf: undefined, payloadBytesMax: 1_048_576 };

/**
 * The events of a tick, checked. With the id of the schedule's row their ids derive from it and the tick, so that the same tick
 * has the same ids in every relay; the events of a trigger get new ones. Whatever the function throws becomes a coded error.
 */
export function eventsOfTick(schedule: NamedEvent, tick: ScheduleTick, scheduleId?: string): InsertableEvent[] {
  try {
    const { event, events } = schedule;
    const given = typeof event === 'function' ? event(tick) : event;
    const list = (Array.isArray(given) ? given : [given]) as readonly ScheduledEvent[];
    if (list.length === 0 || list.length > eventsMax) {
      throw bad(`A tick has 1 to ${eventsMax} events. Got ${list.length}.`);
    }
    const idOf = (index: number) =>
      scheduleId === undefined || tick.triggered ? {} : { id: tickId(scheduleId, tick.at, index) };
    return list.map((each, index) =>
      toInsertableNow({ ...completed(each, schedule.name, tick), ...idOf(index) }, { ...eventLimits, events }),
    );
  } catch (error) {
    const why = error instanceof PostcommitError ? error.detail || error.message : String(error);
    throw new PostcommitError('POSTCOMMIT_E_BAD_SCHEDULE', `schedules.${schedule.name}: Its event is invalid. ${why}`, {
      cause: error,
    });
  }
}

/** With the default aggregate, and with the headers that tell schedule and tick. */
function completed(event: ScheduledEvent, name: string, tick: ScheduleTick): OutboxEvent {
  if (typeof event !== 'object' || event === null) throw bad('An event is an object with type and payload.');
  if ('then' in event) throw bad('The function must return the event itself, not a promise.');
  if ('id' in event) throw bad('Leave id out: the id of an event derives from schedule and tick.');
  const { headers } = event;
  if (headers !== undefined && (typeof headers !== 'object' || headers === null || Array.isArray(headers))) {
    throw bad('headers must be an object whose values are strings.');
  }
  const facts = { 'schedule-name': name, 'schedule-tick': tick.at.toISOString() };
  return {
    ...event,
    aggregate: event.aggregate ?? ['schedule', name],
    headers: { ...headers, ...facts, ...(tick.triggered && { 'schedule-triggered': 'true' }) },
  };
}

/** A UUID of version 8 (RFC 9562), whose bits are the application's own. */
export function tickId(scheduleId: string, at: Date, index: number): string {
  const hash = createHash('sha256').update(`${scheduleId} ${at.toISOString()} ${index}`).digest('hex');
  const variant = ((Number.parseInt(hash.charAt(16), 16) & 3) | 8).toString(16);
  return `${hash.slice(0, 8)}-${hash.slice(8, 12)}-8${hash.slice(13, 16)}-${variant}${hash.slice(17, 20)}-${hash.slice(20, 32)}`;
}

function bad(detail: string): PostcommitError {
  return new PostcommitError('POSTCOMMIT_E_BAD_EVENT', detail);
}
