import { compareSeq } from '../../outbox/delivering/claim.ts';

/** What was decided about a key and a claim may not know of yet. */
interface Memory {
  /** Decisions that are not written down yet. */
  unwritten: number;
  /** The last claim that may have been sent before the last of them was. */
  lastClaim: number;
  /** Only events behind this one are concerned. */
  after: string;
  destinations: Set<string>;
}

const beforeAll = '0';

/**
 * Remembers keys about which something was decided until it is written down *and* every claim sent before that has
 * answered. A claim may bring an event whose predecessor is in this relay's hands; what became of that one since, the
 * claim cannot know.
 */
export class KeyMemory {
  readonly #keys = new Map<string, Memory>();
  #lastAnswered = 0;

  /** One more decision about this key is to be written down. It concerns the events after this one, or all. */
  add(key: string, after = beforeAll, destinations: readonly string[] = []): void {
    const memory = this.#keys.get(key) ?? { unwritten: 0, lastClaim: 0, after, destinations: new Set() };
    memory.unwritten++;
    if (compareSeq(after, memory.after) < 0) memory.after = after;
    for (const destination of destinations) memory.destinations.add(destination);
    this.#keys.set(key, memory);
  }

  /** One of them is written down; claims up to `lastClaim` may still not have seen it. */
  confirm(key: string, lastClaim: number): void {
    const memory = this.#keys.get(key);
    if (!memory) return;
    memory.unwritten--;
    memory.lastClaim = lastClaim;
    if (memory.unwritten <= 0 && lastClaim <= this.#lastAnswered) this.#keys.delete(key);
  }

  /** Every claim up to this number has been answered and accepted. */
  claimsAnswered(claimNumber: number): void {
    this.#lastAnswered = claimNumber;
    for (const [key, { unwritten, lastClaim }] of this.#keys) {
      if (unwritten <= 0 && lastClaim <= claimNumber) this.#keys.delete(key);
    }
  }

  /** The destinations of what was decided, if the claim that brought this event may not know of it. */
  unknownTo(event: { seq: string; key: string | null; claimNumber: number }): ReadonlySet<string> | undefined {
    const memory = event.key === null ? undefined : this.#keys.get(event.key);
    if (!memory || (memory.unwritten <= 0 && event.claimNumber > memory.lastClaim)) return undefined;
    return compareSeq(event.seq, memory.after) > 0 ? memory.destinations : undefined;
  }

  keys(): Iterable<string> {
    return this.#keys.keys();
  }

  clear(): void {
    this.#keys.clear();
  }
}
