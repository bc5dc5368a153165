/** An element of an IndexedSet: it stores its own position. */
export interface Indexed {
  /** Written by the set only. */
  indexInSet?: number;
}

/**
 * A set for elements that come and go with every event. An element can be in one IndexedSet at a time.
 *
 * A JavaScript Set replaces its hash table as elements come and go. A table that has reached V8's old generation keeps what was in
 * it alive until a full collection, so that events which were settled long ago survive minor collections, with all they refer to:
 * 2.3 KB per event survived instead of 1.7, garbage collection took 290 ms instead of 177 in 80,000 events, and a relay 10.2 us of
 * processor time per event instead of 8.5.
 */
export class IndexedSet<T extends Indexed> {
  readonly #items: T[] = [];

  get size(): number {
    return this.#items.length;
  }

  /** The element must not be in the set. */
  add(item: T): void {
    item.indexInSet = this.#items.length;
    this.#items.push(item);
  }

  /** Returns whether the element was in the set. */
  delete(item: T): boolean {
    const index = item.indexInSet ?? -1;
    if (this.#items[index] !== item) return false;
    const last = this.#items.pop() as T;
    if (last === item) return true;
    this.#items[index] = last;
    last.indexInSet = index;
    return true;
  }

  clear(): void {
    this.#items.length = 0;
  }

  /** A copy of all elements, in no particular order. */
  items(): readonly T[] {
    return [...this.#items];
  }
}
