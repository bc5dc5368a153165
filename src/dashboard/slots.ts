export interface SlotLimits {
  /** How many are in use at once. */
  inUseMax: number;
  /** How many callers wait for one. */
  waitingMax: number;
  /** For how long a caller waits. */
  waitMs: number;
}

/** Bounds what runs at once. Callers beyond the limit wait in the order in which they came, in bounded number and for a bounded time. */
export class Slots {
  readonly #limits: SlotLimits;
  readonly #waiting = new Set<() => void>();
  #inUse = 0;

  constructor(limits: SlotLimits) {
    this.#limits = limits;
  }

  /** Returns the function that releases the slot, which may be called twice. `undefined`: none was free in time. */
  async take(signal?: AbortSignal): Promise<(() => void) | undefined> {
    if (this.#inUse < this.#limits.inUseMax) this.#inUse++;
    else if (!(await this.#wait(signal))) return undefined;
    let isReleased = false;
    return () => {
      if (isReleased) return;
      isReleased = true;
      // Handed over, not freed: a caller that comes now must not overtake those that wait.
      const [first] = this.#waiting;
      if (first === undefined) this.#inUse--;
      else first();
    };
  }

  #wait(signal: AbortSignal | undefined): Promise<boolean> {
    const { waitingMax, waitMs } = this.#limits;
    if (this.#waiting.size >= waitingMax || signal?.aborted) return Promise.resolve(false);
    return new Promise((resolve) => {
      const end = (isFree: boolean) => {
        this.#waiting.delete(wake);
        clearTimeout(timer);
        signal?.removeEventListener('abort', giveUp);
        resolve(isFree);
      };
      const wake = () => end(true);
      const giveUp = () => end(false);
      const timer = setTimeout(giveUp, waitMs);
      signal?.addEventListener('abort', giveUp, { once: true });
      this.#waiting.add(wake);
    });
  }
}
