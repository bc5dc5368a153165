import type { ClaimedEvent } from './dispatcher.ts';
import { IndexedSet } from './indexed-set.ts';
import { isSuspect } from './suspicion.ts';

/**
 * The events that a relay has claimed and not yet written down, and the length of the text that came with their claims.
 * By object: an event that was given back may come again before the relay knows that this is written down.
 */
export class ClaimedEvents {
  readonly #events = new IndexedSet<ClaimedEvent>();
  #textLength = 0;
  #suspects = 0;

  /** How many of the events are suspects (see suspicion.ts). */
  get suspects(): number {
    return this.#suspects;
  }

  /** Payloads and headers of all events, in UTF-16 code units. Loaded payloads are not among them. */
  get textLength(): number {
    return this.#textLength;
  }

  add(event: ClaimedEvent): void {
    this.#events.add(event);
    this.#textLength += lengthOf(event);
    if (isSuspect(event)) this.#suspects++;
  }

  delete(event: ClaimedEvent): void {
    if (!this.#events.delete(event)) return;
    this.#textLength -= lengthOf(event);
    if (isSuspect(event)) this.#suspects--;
  }

  clear(): void {
    this.#events.clear();
    this.#textLength = 0;
    this.#suspects = 0;
  }

  seqs(): string[] {
    return this.#events.items().map(({ seq }) => seq);
  }
}

/** The same when the event is written down as when it was claimed: by then the loader has dropped what it loaded. */
function lengthOf({ payloadJson, headersJson }: ClaimedEvent): number {
  return (payloadJson?.length ?? 0) + headersJson.length;
}
