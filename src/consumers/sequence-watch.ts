/** Keys remembered at most: then the one that had no event for the longest time is forgotten. */
const keysMax = 10_000;

/** What is wrong with the position of an event: the same as that of the last one of its key, or lower than that. */
export type SequenceFinding = 'repeated' | 'behind';

/**
 * Compares the positions of the events of each key. A position may skip numbers, because other keys use them: a gap is not
 * reported. A position that repeats or goes back is: a redelivery, a replay, or a broker that did not keep the order.
 */
export class SequenceWatch {
  readonly #last = new Map<string, bigint>();

  note(key: string | null, seq: string | null): { finding: SequenceFinding; highest: string } | undefined {
    if (key === null || seq === null) return undefined;
    const position = BigInt(seq);
    const highest = this.#last.get(key);
    this.#last.delete(key);
    this.#last.set(key, highest !== undefined && highest > position ? highest : position);
    if (this.#last.size > keysMax) {
      const [oldest] = this.#last.keys();
      this.#last.delete(oldest as string);
    }
    if (highest === undefined || position > highest) return undefined;
    return { finding: position === highest ? 'repeated' : 'behind', highest: highest.toString() };
  }
}
