import type { KeyDecisions } from '../dispatch/key-decisions.ts';
import type { ClaimedEvent } from '../event/claimed-event.ts';
import { KeyMemory } from './key-memory.ts';

/**
 * What the dispatcher decided about keys, for as long as a claim may not know of it: until the decision is durable and every
 * claim that was sent before that has returned. Claims are made one at a time, so the last one that was sent is the one whose
 * events are being accepted.
 *
 * A key with a returned event must not be claimed meanwhile: the events of such a claim are returned too, and the key would
 * stay here for as long as it has events.
 */
export class ClaimHistory implements KeyDecisions {
  readonly #returned = new KeyMemory();
  readonly #shelved = new KeyMemory();
  #lastSent = 0;

  /** How many claims were sent. */
  get claims(): number {
    return this.#lastSent;
  }

  /** A claim is about to be sent. Returns its number. */
  sent(): number {
    return ++this.#lastSent;
  }

  /** Every claim up to this number has returned, and its events were accepted. */
  answered(claimNumber: number): void {
    this.#returned.claimsAnswered(claimNumber);
    this.#shelved.claimsAnswered(claimNumber);
  }

  returning(key: string): void {
    this.#returned.add(key);
  }

  shelving(key: string, seq: string, destinations: readonly string[]): void {
    this.#shelved.add(key, seq, destinations);
  }

  /** One event of this key that was returned, or shelved, is durable in the database. */
  settled(key: string, as: 'returned' | 'shelved'): void {
    (as === 'shelved' ? this.#shelved : this.#returned).confirm(key, this.#lastSent);
  }

  mustReturn(event: ClaimedEvent): boolean {
    return this.#returned.unknownTo(this.#lastSent, event) !== undefined;
  }

  shelvedBefore(event: ClaimedEvent): ReadonlySet<string> | undefined {
    return this.#shelved.unknownTo(this.#lastSent, event);
  }

  /** Keys that must not be claimed now. */
  returnedKeys(): Iterable<string> {
    return this.#returned.keys();
  }

  clear(): void {
    this.#returned.clear();
    this.#shelved.clear();
  }
}
