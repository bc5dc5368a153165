import { inlineBytesMax } from '../../outbox/delivering/load-payload.ts';

import type { ClaimedEvent } from '../event/claimed-event.ts';
import { IndexedSet } from '../event/indexed-set.ts';
import { isSuspect, suspectsMax } from '../event/suspicion.ts';

import { Pace } from './pace.ts';

export interface EventBufferOptions {
  /** The least and the most events to buffer. */
  eventsMin: number;
  eventsMax: number;
  /** Length of payloads and headers at most, in UTF-16 code units. */
  bytesMax: number;
  /** Buffered events that wait for slow destinations, loads or other queues: they must not keep others from being claimed. */
  stuck: () => number;
  /** Deliveries of a lost lease that are still in flight. */
  abandoned: () => number;
}

/**
 * The events that this relay has claimed and not yet settled, and how many more it may claim. By object: an event that was
 * released may be claimed again before the relay knows that the release is durable.
 */
export class EventBuffer {
  readonly #options: EventBufferOptions;
  readonly #pace: Pace;
  readonly #events = new IndexedSet<ClaimedEvent>();
  #textLength = 0;
  #suspects = 0;
  /** Called when the last event is settled, or all are dropped. */
  onEmpty: (() => void) | undefined;

  constructor(options: EventBufferOptions) {
    this.#options = options;
    this.#pace = new Pace({ min: options.eventsMin, max: options.eventsMax });
  }

  /** Events that are not settled, or still in flight from a lost lease. */
  get size(): number {
    return this.#events.size + this.#options.abandoned();
  }

  get isEmpty(): boolean {
    return this.size === 0;
  }

  /** How many events to buffer, as of the last claim. */
  get target(): number {
    return this.#pace.bufferTarget;
  }

  /** How many more suspects (see suspicion.ts) may be claimed. */
  get suspectRoom(): number {
    return Math.max(0, suspectsMax - this.#suspects);
  }

  /** How many more events may be claimed: each may have as much text as the inline limit. */
  room(): number {
    const { stuck, abandoned, bytesMax } = this.#options;
    const target = this.#pace.updateBufferTarget(performance.now());
    const buffered = this.#events.size + abandoned() - stuck();
    return Math.min(target - buffered, Math.floor((bytesMax - this.#textLength) / inlineBytesMax));
  }

  /** Whether half a batch fits. */
  hasRoom(batchSizeMax: number): boolean {
    const room = this.room();
    return room >= Math.min(batchSizeMax, this.target, this.#options.bytesMax / inlineBytesMax) / 2;
  }

  add(events: readonly ClaimedEvent[]): void {
    if (events.length > 0) this.#pace.busy(performance.now());
    for (const event of events) {
      this.#events.add(event);
      this.#textLength += lengthOf(event);
      if (isSuspect(event)) this.#suspects++;
    }
  }

  /** The event is settled. */
  delete(event: ClaimedEvent): void {
    if (this.#events.delete(event)) {
      this.#textLength -= lengthOf(event);
      if (isSuspect(event)) this.#suspects--;
    }
    this.#pace.done();
    if (!this.isEmpty) return;
    this.#pace.idle(performance.now());
    this.onEmpty?.();
  }

  clear(): void {
    this.#events.clear();
    this.#textLength = 0;
    this.#suspects = 0;
    this.onEmpty?.();
  }

  events(): readonly ClaimedEvent[] {
    return this.#events.items();
  }

  seqs(): string[] {
    return this.#events.items().map(({ seq }) => seq);
  }
}

/** Returns the same when the event is settled as when it was claimed: the loader has dropped what it loaded. */
function lengthOf({ payloadJson, headersJson }: ClaimedEvent): number {
  return (payloadJson?.length ?? 0) + headersJson.length;
}
