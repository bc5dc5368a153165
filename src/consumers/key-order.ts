/** Runs work of one key one after the other and of different keys in parallel, at most `inFlightMax` at once. */
export class KeyOrder {
  readonly #inFlightMax: number;
  /** The last work of each key that has not ended. */
  readonly #tails = new Map<string, Promise<unknown>>();
  /** Work whose turn in its key has come, and that waits for a slot. */
  readonly #waiting: (() => void)[] = [];
  #inFlight = 0;
  #pending = 0;
  #idle: { promise: Promise<void>; resolve(): void } | undefined;
  #room: { promise: Promise<void>; resolve(): void; below: number } | undefined;

  constructor(inFlightMax: number) {
    this.#inFlightMax = inFlightMax;
  }

  /** Work in progress. */
  get inFlight(): number {
    return this.#inFlight;
  }

  /** Work in progress or waiting. */
  get pending(): number {
    return this.#pending;
  }

  /** `null`: not ordered. */
  async run<T>(key: string | null, work: () => Promise<T>): Promise<T> {
    this.#pending++;
    try {
      if (key === null) return await this.#inSlot(work);
      const before = this.#tails.get(key);
      const mine = (before ?? Promise.resolve()).then(() => this.#inSlot(work));
      const tail = mine.catch(() => {});
      this.#tails.set(key, tail);
      try {
        return await mine;
      } finally {
        if (this.#tails.get(key) === tail) this.#tails.delete(key);
      }
    } finally {
      this.#pending--;
      if (this.#pending === 0) this.#idle?.resolve();
      if (this.#room !== undefined && this.#pending < this.#room.below) {
        this.#room.resolve();
        this.#room = undefined;
      }
    }
  }

  /** Resolves when nothing is in progress or waiting. */
  async idle(): Promise<void> {
    while (this.#pending > 0) {
      if (this.#idle === undefined) {
        const latch = newLatch();
        this.#idle = latch;
        void latch.promise.then(() => {
          if (this.#idle === latch) this.#idle = undefined;
        });
      }
      await this.#idle.promise;
    }
  }

  /** Resolves when less than `below` is in progress or waiting. One caller at a time. */
  async room(below: number): Promise<void> {
    if (this.#pending < below) return;
    this.#room ??= { ...newLatch(), below };
    await this.#room.promise;
  }

  async #inSlot<T>(work: () => Promise<T>): Promise<T> {
    if (this.#inFlight >= this.#inFlightMax) await new Promise<void>((resolve) => this.#waiting.push(resolve));
    else this.#inFlight++;
    try {
      return await work();
    } finally {
      // The slot goes to the next one, without being free in between.
      const next = this.#waiting.shift();
      if (next) next();
      else this.#inFlight--;
    }
  }
}

function newLatch(): { promise: Promise<void>; resolve(): void } {
  let resolve = () => {};
  const promise = new Promise<void>((done) => {
    resolve = done;
  });
  return { promise, resolve };
}
