import { compareSeq } from '../../outbox/delivering/claim.ts';

/** A decision about a key that a claim may not know of yet. */
interface Memory {
  /** Decisions that are not durable yet. */
  unwritten: number;
  /** The last claim that may have been sent before the last decision was durable. */
  lastClaim: number;
  /** Only events behind this one are concerned. */
  after: string;
  destinations: Set<string>;
}

const beforeAll = '0';

/**
 * Remembers keys about which something was decided until that is durable *and* every claim sent before has returned. A claim
 * may return an event whose predecessor this relay has already claimed; it does not know what was decided about that one
 * since.
 */
export class KeyMemory {
  readonly #keys = new Map<string, Memory>();
  #lastAnswered = 0;

  /** One more decision about this key is to be written. It concerns the events after this one, or all. */
  add(key: string, after = beforeAll, destinations: readonly string[] = []): void {
    const memory = this.#keys.get(key) ?? { unwritten: 0, lastClaim: 0, after, destinations: new Set() };
    memory.unwritten++;
    if (compareSeq(after, memory.after) < 0) memory.after = after;
    for (const destination of destinations) memory.destinations.add(destination);
    this.#keys.set(key, memory);
  }

  /** One of them is durable; claims up to `lastClaim` may still not see it. */
  confirm(key: string, lastClaim: number): void {
    const memory = this.#keys.get(key);
    if (!memory) return;
    memory.unwritten--;
    memory.lastClaim = lastClaim;
    if (memory.unwritten <= 0 && lastClaim <= this.#lastAnswered) this.#keys.delete(key);
  }

  /** Every claim up to this number has returned, and its events were accepted. */
  claimsAnswered(claimNumber: number): void {
    this.#lastAnswered = claimNumber;
    for (const [key, { unwritten, lastClaim }] of this.#keys) {
      if (unwritten <= 0 && lastClaim <= claimNumber) this.#keys.delete(key);
    }
  }

  /** The destinations of the decision, if claim `claimNumber`, which returned this event, may not know of it. */
  unknownTo(claimNumber: number, event: { seq: string; key: string | null }): ReadonlySet<string> | undefined {
    const memory = event.key === null ? undefined : this.#keys.get(event.key);
    if (!memory || (memory.unwritten <= 0 && claimNumber > memory.lastClaim)) return undefined;
    return compareSeq(event.seq, memory.after) > 0 ? memory.destinations : undefined;
  }

  keys(): Iterable<string> {
    return this.#keys.keys();
  }

  clear(): void {
    this.#keys.clear();
  }
}
