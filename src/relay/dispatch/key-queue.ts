import type { ClaimedEvent } from '../event/claimed-event.ts';
import { blockedAfterMs, keyBufferMs, keyEventsMin, slowKeyAfterMs, timedGroupMs, timedGroupSize } from './tuning.ts';

/** The buffered events of one key, and how long their deliveries take. */
export class KeyQueue {
  /** Events behind the front. The front are those that are being delivered, or may start. */
  behind: ClaimedEvent[] = [];
  /** The last event of the front. */
  tail: ClaimedEvent | undefined;
  /** How many events the front has, and how many of these are being delivered. */
  #front = 0;
  #underWay = 0;
  #occupies = false;
  /** Whether the front waits for nothing but a slot of its queue. */
  #mayStart = false;
  /** When it was first found that the present front blocks a queue; 0 if it was not. */
  #blocksSince = 0;
  /** When the first delivery in flight was started; 0 if there is none. */
  #startedAt = 0;
  #groupMs = 0;
  #groupSize = 0;
  #tookMs = 0;

  get front(): number {
    return this.#front;
  }

  /** Whether a delivery is in flight. */
  get begun(): boolean {
    return this.#underWay > 0;
  }

  /** Whether some events of the front have not started. */
  get waits(): boolean {
    return this.#front > this.#underWay;
  }

  /** Whether the key has at least half of its share of the buffer. */
  hasEnough(now: number): boolean {
    return this.behind.length * 2 >= this.bufferShare(now);
  }

  /** The front grows by this event. */
  lead(event: ClaimedEvent): void {
    this.tail = event;
    this.#front++;
    this.#mayStart = false;
    this.#blocksSince = 0;
  }

  /** The front has everything it needs but a slot of its queue. */
  awaitSlot(): void {
    this.#mayStart = true;
  }

  /**
   * Whether events of this queue wait behind work that needs no slot of the queue, or cannot start for another reason than
   * that: they are of no use in its buffer.
   */
  blocks(queue: string): boolean {
    if (this.tail === undefined || this.#front === 0) return false;
    return this.tail.queue !== queue || !(this.begun || this.#mayStart);
  }

  /** It was found that the front blocks a queue. */
  noteBlocks(now: number): void {
    if (this.#blocksSince === 0) this.#blocksSince = now;
  }

  /** Whether that is so for long. */
  blocksForLong(now: number): boolean {
    return this.#blocksSince > 0 && now - this.#blocksSince > blockedAfterMs;
  }

  /** Events of the front that had not started were released. */
  leaveUnbegun(): void {
    this.#front = this.#underWay;
  }

  /** A delivery starts. `occupies`: whether it takes one of the relay's slots. */
  begin(now: number, occupies: boolean): void {
    this.#underWay++;
    this.#occupies = occupies;
    if (this.#startedAt === 0) this.#startedAt = now;
  }

  /** One event of the front is delivered. */
  advance(now: number): void {
    this.#front--;
    this.#underWay--;
    const tookMs = now - this.#startedAt;
    // Events of a run end together, and the first is charged with all of the time: the group ends when time passes again.
    if (tookMs >= 1) this.#endGroup();
    this.#groupMs += tookMs;
    this.#groupSize++;
    this.#startedAt = this.#underWay > 0 ? now : 0;
    if (this.#underWay === 0) this.#endGroup();
  }

  #endGroup(): void {
    if (this.#groupMs < timedGroupMs && this.#groupSize < timedGroupSize) return;
    this.#tookMs = this.#groupMs / this.#groupSize;
    this.#groupMs = 0;
    this.#groupSize = 0;
  }

  /**
   * Whether its deliveries take so long that its backlog should be deferred. Not for destinations: how long a broker takes
   * does not depend on the key, and if all keys were deferred nothing would be left to send.
   */
  isSlow(now: number): boolean {
    if (!this.#occupies) return false;
    return this.#tookMs > slowKeyAfterMs || (this.begun && (now - this.#startedAt) / this.#underWay > slowKeyAfterMs);
  }

  /** Whether it has events of a queue: only these may use the buffer of that queue. */
  concerns(queue: string): boolean {
    return this.tail?.queue === queue || this.behind.some((event) => event.queue === queue);
  }

  /** How many events of a queue it has behind its front. */
  countBehind(queue: string): number {
    let count = 0;
    for (const event of this.behind) if (event.queue === queue) count++;
    return count;
  }

  /** Takes out the events of a queue beyond `share`, and all that are behind the first of them. */
  takeExcess(queue: string, share: number): ClaimedEvent[] {
    let left = share;
    const first = this.behind.findIndex((event) => event.queue === queue && left-- <= 0);
    return first === -1 ? [] : this.behind.splice(first);
  }

  /** How many events it may have behind its front. */
  bufferShare(now: number): number {
    if (this.isSlow(now)) return keyEventsMin;
    return Math.max(keyEventsMin, keyBufferMs / this.#tookMs);
  }
}
