import type { LimitedHandler } from '../deliver/handler-options.ts';
import type { ClaimedEvent } from '../event/claimed-event.ts';
import type { Fifo } from './fifo.ts';
import { linesShare } from './tuning.ts';

export interface HandlerLinesOptions {
  /** The handler whose limits decide when this event may start; `undefined` if it has other targets, or no limits apply. */
  limitedHandlerOf: (event: ClaimedEvent) => LimitedHandler | undefined;
  now: () => number;
  /** The time has come for an event that was not due when `next` was called. */
  onDue: () => void;
}

interface Line {
  readonly handler: LimitedHandler;
  readonly events: ClaimedEvent[];
  /** Since when its next batch gathers. */
  gathersSince: number;
  /** Events that left the line to be loaded, and come back. */
  readonly loading: Set<ClaimedEvent>;
}

/**
 * Events that wait for a handler with limits, in a line per handler, or for others to make a batch with. They take no slot, so other handlers do not wait for them,
 * and together at most a quarter of the buffer: the rest is released.
 */
export class HandlerLines {
  readonly #options: HandlerLinesOptions;
  readonly #lines = new Map<LimitedHandler, Line>();
  #isNext = false;
  #timer: NodeJS.Timeout | undefined;
  #timerAt = Number.POSITIVE_INFINITY;

  constructor(options: HandlerLinesOptions) {
    this.#options = options;
  }

  get isEmpty(): boolean {
    for (const { events } of this.#lines.values()) if (events.length > 0) return false;
    return true;
  }

  /** Returns whether the event waits here now. One that was loaded is the next of its line. */
  take(event: ClaimedEvent): boolean {
    // Once it is loaded it may be planned, and then have other targets.
    const wasLoaded = this.notLoading(event);
    const handler = this.#options.limitedHandlerOf(event);
    if (handler === undefined) return false;
    const line = this.#lines.get(handler) ?? { handler, events: [], gathersSince: 0, loading: new Set() };
    this.#lines.set(handler, line);
    if (line.events.length === 0) line.gathersSince = this.#options.now();
    if (wasLoaded) line.events.unshift(event);
    else line.events.push(event);
    return true;
  }

  /** Returns whether the event was here. */
  delete(event: ClaimedEvent): boolean {
    for (const { events } of this.#lines.values()) {
      const at = events.indexOf(event);
      if (at === -1) continue;
      events.splice(at, 1);
      return true;
    }
    return false;
  }

  /** The event no longer comes back to its line from being loaded. Returns whether it was to. */
  notLoading(event: ClaimedEvent): boolean {
    for (const { loading } of this.#lines.values()) if (loading.delete(event)) return true;
    return false;
  }

  /** The next event of a line or of the others: they alternate, so that neither starve. */
  nextBeside(others: Fifo<ClaimedEvent>): ClaimedEvent | undefined {
    this.#isNext = !this.#isNext;
    if (this.#isNext) return this.next() ?? others.shift();
    return others.shift() ?? this.next();
  }

  /** The next event whose handler is below its limits. If it is not loaded yet, it comes back by `take` or `notLoading`. */
  next(): ClaimedEvent | undefined {
    const now = this.#options.now();
    let dueMs = Number.POSITIVE_INFINITY;
    for (const line of this.#lines.values()) {
      if (line.events.length === 0) continue;
      const waitMs = Math.max(line.handler.limiter.waitMs(now, line.loading.size), gatherMs(line, now));
      if (waitMs === 0) return this.#shift(line);
      dueMs = Math.min(dueMs, waitMs);
    }
    this.#callIn(dueMs, now);
    return undefined;
  }

  /** The events that make a batch with the one that `next` has returned: they need no slots of their own. */
  alongWith(first: ClaimedEvent): ClaimedEvent[] {
    const handler = first.attempts > 0 ? undefined : this.#options.limitedHandlerOf(first);
    const line = handler && this.#lines.get(handler);
    if (!line?.handler.batch) return [];
    const rest = line.events.findIndex((event) => event.attempts > 0 || mustLoad(event));
    const count = Math.min(rest === -1 ? line.events.length : rest, line.handler.batch.sizeMax - 1);
    line.gathersSince = this.#options.now();
    return line.events.splice(0, count);
  }

  /** Takes out the events beyond each line's share of the buffer, with the time for which to release them. */
  excess(bufferTarget: number): { event: ClaimedEvent; delayMs: number }[] {
    const lines = [...this.#lines.values()].filter(({ events }) => events.length > 0);
    const share = Math.max(1, Math.floor((bufferTarget * linesShare) / lines.length));
    const now = this.#options.now();
    return lines.flatMap((line) => {
      const { batch } = line.handler;
      // A batch may be larger than the share.
      const keep = batch ? Math.max(share, Math.min(batch.sizeMax, 2 * share)) : share;
      const excess = line.events.splice(keep);
      if (excess.length > 0) line.gathersSince = Number.NEGATIVE_INFINITY; // It cannot gather more.
      return excess.map((event) => ({ event, delayMs: line.handler.limiter.releaseMs(keep, now) }));
    });
  }

  drain(): ClaimedEvent[] {
    const waiting = [...this.#lines.values()].flatMap(({ events }) => events);
    this.clear();
    return waiting;
  }

  clear(): void {
    this.#lines.clear();
    clearTimeout(this.#timer);
    this.#timer = undefined;
    this.#timerAt = Number.POSITIVE_INFINITY;
  }

  #shift(line: Line): ClaimedEvent {
    const event = line.events.shift() as ClaimedEvent;
    if (mustLoad(event)) line.loading.add(event);
    // The other lines have the next turns.
    this.#lines.delete(line.handler);
    this.#lines.set(line.handler, line);
    return event;
  }

  #callIn(dueMs: number, now: number): void {
    if (now + dueMs >= this.#timerAt || dueMs === Number.POSITIVE_INFINITY) return;
    clearTimeout(this.#timer);
    this.#timerAt = now + dueMs;
    this.#timer = setTimeout(() => {
      this.#timer = undefined;
      this.#timerAt = Number.POSITIVE_INFINITY;
      this.#options.onDue();
    }, dueMs).unref();
  }
}

/** For how long the line gathers a batch before it may start. An event that failed before is handled alone. */
function gatherMs({ handler: { batch }, events, gathersSince }: Line, now: number): number {
  const first = events[0] as ClaimedEvent;
  if (batch === undefined || first.attempts > 0 || events.length >= batch.sizeMax) return 0;
  return Math.max(0, Math.ceil(gathersSince + batch.waitMs - now));
}

function mustLoad({ payloadJson, id }: ClaimedEvent): boolean {
  return payloadJson === undefined && id !== '';
}
