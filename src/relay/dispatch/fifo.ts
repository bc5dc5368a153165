/** A first-in-first-out list whose `shift()` does not move the rest, and that keeps no reference to what has left it. */
export class Fifo<T> {
  #items: (T | undefined)[] = [];
  #head = 0;

  push(item: T): void {
    this.#items.push(item);
  }

  shift(): T | undefined {
    if (this.#head === this.#items.length) return undefined;
    const item = this.#items[this.#head];
    // Otherwise an event with its payload would live until a thousand more have passed, which takes minutes in a quiet relay.
    this.#items[this.#head++] = undefined;
    if (this.#head === this.#items.length) {
      this.clear();
    } else if (this.#head > 1_024 && this.#head * 2 > this.#items.length) {
      this.#items = this.#items.slice(this.#head);
      this.#head = 0;
    }
    return item;
  }

  items(): T[] {
    return this.#items.slice(this.#head) as T[];
  }

  /** Returns whether there was one. */
  remove(matches: (item: T) => boolean): boolean {
    const items = this.items();
    this.#items = items.filter((item) => !matches(item));
    this.#head = 0;
    return this.#items.length < items.length;
  }

  drain(): T[] {
    const rest = this.items();
    this.clear();
    return rest;
  }

  clear(): void {
    this.#items.length = 0;
    this.#head = 0;
  }
}
