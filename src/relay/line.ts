import type { Held } from './dispatcher.ts';

/** A delivery that takes longer makes its key slow. */
const slowAfterMs = 100;
/** A key may hold so much work, in time, or so many events if that is more. */
const inHandMs = 250;
const inHandMin = 32;
/** Deliveries are timed in groups, so that one pause of the process does not make a fast key slow. */
const groupSize = 16;
const groupMs = 20;

/** The events of one key that a relay holds, and how long their deliveries take. */
export class Line {
  /** What waits behind the front: the one that is being delivered or next to be. */
  behind: Held[] = [];
  /** 0 while the front waits for a free slot. */
  #startedAt = 0;
  #groupMs = 0;
  #groupSize = 0;
  #tookMs = 0;

  /** Whether the front is being delivered. */
  get begun(): boolean {
    return this.#startedAt !== 0;
  }

  begin(now: number): void {
    this.#startedAt = now;
  }

  /** The front is delivered; the next one takes its place, if there is one. */
  advance(now: number): Held | undefined {
    this.#groupMs += now - this.#startedAt;
    this.#groupSize++;
    this.#startedAt = 0;
    if (this.#groupMs >= groupMs || this.#groupSize >= groupSize) {
      this.#tookMs = this.#groupMs / this.#groupSize;
      this.#groupMs = 0;
      this.#groupSize = 0;
    }
    return this.behind.shift();
  }

  isSlow(now: number): boolean {
    return this.#tookMs > slowAfterMs || (this.begun && now - this.#startedAt > slowAfterMs);
  }

  /** How many events it should hold behind its front at most. */
  share(now: number): number {
    if (this.isSlow(now)) return inHandMin;
    return Math.max(inHandMin, inHandMs / this.#tookMs);
  }
}
