import type { HandlerLimiter } from '../deliver/handler-limiter.ts';
import type { ClaimedEvent } from '../event/claimed-event.ts';
import { linesShare } from './tuning.ts';

export interface HandlerLinesOptions {
  /** The limits that decide when this event may start; `undefined` if it has other targets, or no limits apply. */
  limiterOf: (event: ClaimedEvent) => HandlerLimiter | undefined;
  now: () => number;
  /** The time has come for an event that was not due when `next` was called. */
  onDue: () => void;
}

interface Line {
  readonly limiter: HandlerLimiter;
  readonly events: ClaimedEvent[];
  /** Events that left the line to be loaded, and come back. */
  readonly loading: Set<ClaimedEvent>;
}

/**
 * Events that wait for a handler at its limit, in a line per handler. They take no slot, so other handlers do not wait for them,
 * and together at most a quarter of the buffer: the rest is released.
 */
export class HandlerLines {
  readonly #options: HandlerLinesOptions;
  readonly #lines = new Map<HandlerLimiter, Line>();
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
    const limiter = this.#options.limiterOf(event);
    if (limiter === undefined) return false;
    const line = this.#lines.get(limiter) ?? { limiter, events: [], loading: new Set() };
    this.#lines.set(limiter, line);
    if (line.loading.delete(event)) line.events.unshift(event);
    else line.events.push(event);
    return true;
  }

  /** The event was to be loaded, and could not. */
  notLoaded(event: ClaimedEvent): void {
    for (const { loading } of this.#lines.values()) loading.delete(event);
  }

  /** The next event whose handler is below its limits. If it is not loaded yet, it comes back by `take` or `notLoaded`. */
  next(): ClaimedEvent | undefined {
    const now = this.#options.now();
    let dueMs = Number.POSITIVE_INFINITY;
    for (const line of this.#lines.values()) {
      if (line.events.length === 0) continue;
      const waitMs = line.limiter.waitMs(now, line.loading.size);
      if (waitMs === 0) return this.#shift(line);
      dueMs = Math.min(dueMs, waitMs);
    }
    this.#callIn(dueMs, now);
    return undefined;
  }

  /** Takes out the events beyond each line's share of the buffer, with the time for which to release them. */
  excess(bufferTarget: number): { event: ClaimedEvent; delayMs: number }[] {
    const lines = [...this.#lines.values()].filter(({ events }) => events.length > 0);
    const share = Math.max(1, Math.floor((bufferTarget * linesShare) / lines.length));
    const now = this.#options.now();
    return lines.flatMap(({ limiter, events }) =>
      events.splice(share).map((event) => ({ event, delayMs: limiter.releaseMs(share, now) })),
    );
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
    if (event.payloadJson === undefined && event.id !== '') line.loading.add(event);
    // The other lines have the next turns.
    this.#lines.delete(line.limiter);
    this.#lines.set(line.limiter, line);
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
