const windowMs = 60_000;
const failuresMax = 10;
/** All clients without an address share one count: ten would let any of them keep the others from signing in. */
const failuresWithoutAddressMax = 100;
/** Beyond this, the oldest are forgotten: an attacker with many addresses must not fill the memory. */
const addressesMax = 10_000;

/**
 * Counts wrong tokens by address. An address with ten in a minute is locked until that minute is over. Where there is no address,
 * all requests count as one, which is locked after a hundred.
 */
export class FailureLimiter {
  readonly #byAddress = new Map<string | undefined, { since: number; count: number }>();
  readonly #now: () => number;

  constructor(now: () => number = () => performance.now()) {
    this.#now = now;
  }

  isLocked(address: string | undefined): boolean {
    const found = this.#byAddress.get(address);
    const limit = address === undefined ? failuresWithoutAddressMax : failuresMax;
    return found !== undefined && found.count >= limit && this.#now() - found.since < windowMs;
  }

  note(address: string | undefined): void {
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
      this.#byAddress.delete(oldest);
    }
  }
}
