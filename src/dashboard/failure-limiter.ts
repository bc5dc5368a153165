const windowMs = 60_000;
const failuresMax = 10;
/** Beyond this, the oldest are forgotten: an attacker with many addresses must not fill the memory. */
const addressesMax = 10_000;

/** Counts wrong tokens by address. An address with ten in a minute is locked until that minute is over. */
export class FailureLimiter {
  readonly #byAddress = new Map<string, { since: number; count: number }>();
  readonly #now: () => number;

  constructor(now: () => number = () => performance.now()) {
    this.#now = now;
  }

  isLocked(address: string): boolean {
    const found = this.#byAddress.get(address);
    return found !== undefined && found.count >= failuresMax && this.#now() - found.since < windowMs;
  }

  note(address: string): void {
    const now = this.#now();
    const found = this.#byAddress.get(address);
    if (found !== undefined && now - found.since < windowMs) {
      found.count++;
      return;
    }
    this.#byAddress.delete(address);
    this.#byAddress.set(address, { since: now, count: 1 });
    if (this.#byAddress.size > addressesMax) {
      const [oldest] = this.#byAddress.keys();
      if (oldest !== undefined) this.#byAddress.delete(oldest);
    }
  }
}
