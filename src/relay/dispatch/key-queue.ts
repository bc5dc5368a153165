import type { ClaimedEvent } from './dispatcher.ts';

/** A delivery that takes longer makes its key slow. */
const slowAfterMs = 100;
/** A key may hold so much work, in time, or so many events if that is more. */
const bufferMs = 250;
const bufferMin = 32;
/** Deliveries are timed in groups, so that one pause of the process does not make a fast key slow. */
const groupSize = 16;
const groupMs = 20;

/** The events of one key that a relay holds, and how long their deliveries take. */
export class KeyQueue {
  /** What waits behind the front: those that are being delivered or next to be. */
  behind: ClaimedEvent[] = [];
  /** The last event of the front. */
  tail: ClaimedEvent | undefined;
  /** How many events the front has, and how many of these are being delivered. */
  #front = 0;
  #underWay = 0;
  #occupies = false;
  /** 0 while nothing is being delivered; else since when the first of what is. */
  #startedAt = 0;
  #groupMs = 0;
  #groupSize = 0;
  #tookMs = 0;

  get front(): number {
    return this.#front;
  }

  /** Whether something is being delivered. */
  get begun(): boolean {
    return this.#underWay > 0;
  }

  /** Whether some of the front wait for their turn. */
  get waits(): boolean {
    return this.#front > this.#underWay;
  }

  /** The front grows by this event. */
  lead(event: ClaimedEvent): void {
    this.tail = event;
    this.#front++;
  }

  /** Events of the front that had not begun were given back. */
  leaveUnbegun(): void {
    this.#front = this.#underWay;
  }

  /** `occupies`: whether it takes one of the relay's slots. */
  begin(now: number, occupies: boolean): void {
    this.#underWay++;
    this.#occupies = occupies;
    if (this.#startedAt === 0) this.#startedAt = now;
  }

  /** One of the front is delivered. */
  advance(now: number): void {
    this.#front--;
    this.#underWay--;
    const tookMs = now - this.#startedAt;
    // Events of a run end together, and the first of them has all the time: the group ends when time passes again.
    if (tookMs >= 1) this.#endGroup();
    this.#groupMs += tookMs;
    this.#groupSize++;
    this.#startedAt = this.#underWay > 0 ? now : 0;
    if (this.#underWay === 0) this.#endGroup();
  }

  #endGroup(): void {
    if (this.#groupMs < groupMs && this.#groupSize < groupSize) return;
    this.#tookMs = this.#groupMs / this.#groupSize;
    this.#groupMs = 0;
    this.#groupSize = 0;
  }

  /**
   * Whether its deliveries take so long that it should step aside. Not for destinations: how long a broker takes is not
   * the key's doing, and if all keys stepped aside nothing would be left to send.
   */
  isSlow(now: number): boolean {
    if (!this.#occupies) return false;
    return this.#tookMs > slowAfterMs || (this.begun && (now - this.#startedAt) / this.#underWay > slowAfterMs);
  }

  /** How many events it should hold behind its front at most. */
  bufferShare(now: number): number {
    if (this.isSlow(now)) return bufferMin;
    return Math.max(bufferMin, bufferMs / this.#tookMs);
  }
}
