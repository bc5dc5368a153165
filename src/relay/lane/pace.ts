import { bufferMs, paceSampleMsMin } from './tuning.ts';

/**
 * How many events to buffer, depending on how fast they are delivered: a quarter of a second of work. Fast handlers need a
 * long buffer to stay busy; with slow ones a long buffer only keeps events from other relays, and makes a stop release more.
 * The time is an argument of every method.
 */
export class Pace {
  readonly #min: number;
  readonly #max: number;
  #perMs = 0;
  #done = 0;
  #busyMs = 0;
  #busySince: number | undefined;
  #bufferTarget: number;

  constructor(limits: { min: number; max: number }) {
    this.#max = limits.max;
    this.#min = Math.min(limits.min, limits.max);
    this.#bufferTarget = this.#min;
  }

  /** What `updateBufferTarget` returned last. */
  get bufferTarget(): number {
    return this.#bufferTarget;
  }

  /** Events are buffered from now on. */
  busy(now: number): void {
    this.#busySince ??= now;
  }

  /** The buffer is empty from now on. */
  idle(now: number): void {
    if (this.#busySince !== undefined) this.#busyMs += now - this.#busySince;
    this.#busySince = undefined;
  }

  /** One event is settled. */
  done(): void {
    this.#done++;
  }

  /** How many events to buffer now. */
  updateBufferTarget(now: number): number {
    const busyMs = this.#busyMs + (this.#busySince === undefined ? 0 : now - this.#busySince);
    if (busyMs >= paceSampleMsMin && (this.#done > 0 || busyMs >= bufferMs)) {
      const perMs = this.#done / busyMs;
      this.#perMs = this.#perMs === 0 ? perMs : (this.#perMs + perMs) / 2;
      this.#done = 0;
      this.#busyMs = 0;
      if (this.#busySince !== undefined) this.#busySince = now;
    }
    this.#bufferTarget = Math.min(this.#max, Math.max(this.#min, Math.ceil(this.#perMs * bufferMs)));
    return this.#bufferTarget;
  }
}
