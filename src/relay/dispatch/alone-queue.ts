import type { ClaimedEvent } from '../event/claimed-event.ts';
import { aloneWaitMs } from './tuning.ts';

export interface AloneQueueOptions {
  now: () => number;
  /** The first event has waited long enough for deliveries in flight, or for others to start after the last trial. */
  onOverdue: () => void;
}

/**
 * Prime suspects (suspicion.ts): they start when nothing else is in flight, and nothing else starts meanwhile. After a trial others
 * may start for as long as it took: ten suspects that work for long must not stop the relay ten times as long.
 */
export class AloneQueue {
  readonly #options: AloneQueueOptions;
  #events: ClaimedEvent[] = [];
  /** Since when the first of them waits for deliveries in flight. */
  #since: number | undefined;
  #timer: NodeJS.Timeout | undefined;
  /** When the last trial was started. */
  #startedAt = 0;
  /** Until then, others may start. */
  #restUntil = 0;
  #restTimer: NodeJS.Timeout | undefined;

  constructor(options: AloneQueueOptions) {
    this.#options = options;
  }

  get isEmpty(): boolean {
    return this.#events.length === 0;
  }

  /** Whether there is one, and it is its turn. */
  get isDue(): boolean {
    return !this.isEmpty && this.#options.now() >= this.#restUntil;
  }

  /** A trial has ended. */
  rest(): void {
    const now = this.#options.now();
    this.endRest();
    this.#restUntil = now + (now - this.#startedAt);
    this.#restTimer = setTimeout(() => {
      // Timers of Node may fire up to 1 ms early: by the clock the rest would still last, and nothing would end it.
      this.#restUntil = 0;
      this.#options.onOverdue();
    }, this.#restUntil - now).unref();
  }

  endRest(): void {
    this.#restUntil = 0;
    clearTimeout(this.#restTimer);
  }

  push(event: ClaimedEvent): void {
    this.#events.push(event);
  }

  /** The first event, when nothing is in flight or it has waited long enough for that. Until then nothing else may start. */
  next(inFlight: number): ClaimedEvent | undefined {
    this.#since ??= this.#options.now();
    const leftMs = this.#since + aloneWaitMs - this.#options.now();
    if (inFlight > 0 && leftMs > 0) {
      this.#timer ??= setTimeout(() => {
        this.#timer = undefined;
        this.#options.onOverdue();
      }, leftMs).unref();
      return undefined;
    }
    this.#since = undefined;
    this.#startedAt = this.#options.now();
    return this.#events.shift();
  }

  /** Returns whether the event was here. */
  delete(event: ClaimedEvent): boolean {
    const at = this.#events.indexOf(event);
    if (at !== -1) this.#events.splice(at, 1);
    if (this.isEmpty) this.#stopWaiting();
    return at !== -1;
  }

  drain(): ClaimedEvent[] {
    this.#stopWaiting();
    return this.#events.splice(0);
  }

  #stopWaiting(): void {
    this.#since = undefined;
    clearTimeout(this.#timer);
    this.#timer = undefined;
  }
}
