import type { ClaimedEvent } from '../event/claimed-event.ts';
import { aloneWaitMs } from './tuning.ts';

export interface AloneQueueOptions {
  now: () => number;
  /** The first event has waited long enough for deliveries in flight. */
  onOverdue: () => void;
}

/** Prime suspects (suspicion.ts): they start when nothing else is in flight, and nothing else starts meanwhile. */
export class AloneQueue {
  readonly #options: AloneQueueOptions;
  #events: ClaimedEvent[] = [];
  /** Since when the first of them waits for deliveries in flight. */
  #since: number | undefined;
  #timer: NodeJS.Timeout | undefined;

  constructor(options: AloneQueueOptions) {
    this.#options = options;
  }

  get isEmpty(): boolean {
    return this.#events.length === 0;
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
