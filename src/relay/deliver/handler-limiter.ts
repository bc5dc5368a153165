/** What an event waits for at least, and at most, that is released because its handler is at its limit. */
const releaseMsMin = 500;
const releaseMsMax = 60_000;
/** How long a call is assumed to take until one has ended. */
const firstCallMs = 100;
/** How much the last call counts in the mean duration. */
const lastCallWeight = 0.2;
/** Tokens are refilled in small parts, whose sum may be a little less than one. */
const roundingError = 1e-6;
/** The part of a second's calls that may start at once. */
const burst = 0.1;

/** The limits of one handler in this relay: calls at once, and starts per second (a token bucket). */
export class HandlerLimiter {
  readonly #inFlightMax: number;
  readonly #rateMax: number;
  readonly #tokensMax: number;
  #tokens: number;
  #refilledAt = Number.NEGATIVE_INFINITY;
  #inFlight = 0;
  #callMs = firstCallMs;
  /** How many events were released, by the second when they are due again. */
  readonly #released = new Map<number, number>();

  constructor({ inFlightMax, rateMax }: { inFlightMax?: number | undefined; rateMax?: number | undefined }) {
    this.#inFlightMax = inFlightMax ?? Number.POSITIVE_INFINITY;
    this.#rateMax = rateMax ?? Number.POSITIVE_INFINITY;
    this.#tokensMax = Math.max(1, this.#rateMax * burst);
    this.#tokens = this.#tokensMax;
  }

  /**
   * How long until a call may start, besides `reserved` ones that have not started yet: 0 for now, Infinity for as long as the
   * calls in flight take.
   */
  waitMs(now: number, reserved = 0): number {
    if (this.#inFlight + reserved >= this.#inFlightMax) return Number.POSITIVE_INFINITY;
    if (this.#rateMax === Number.POSITIVE_INFINITY) return 0;
    this.#refill(now);
    const missing = 1 + reserved - this.#tokens;
    return missing < roundingError ? 0 : Math.ceil((missing / this.#rateMax) * 1_000);
  }

  begin(now: number): void {
    this.#inFlight++;
    if (this.#rateMax === Number.POSITIVE_INFINITY) return;
    this.#refill(now);
    this.#tokens--;
  }

  end(tookMs: number): void {
    this.#inFlight--;
    this.#callMs += (tookMs - this.#callMs) * lastCallWeight;
  }

  /**
   * For how long to release an event that has `ahead` others before it in this relay. Half of the time until its turn, as far
   * as that is known: it comes back a few times at most, and the handler is not left without work when calls are
   * faster than they were.
   */
  releaseMs(ahead: number, now: number): number {
    const perCallMs = Math.max(this.#callMs / this.#inFlightMax, 1_000 / this.#rateMax);
    const untilTurnMs = (ahead + this.#countReleased(now)) * perCallMs;
    const delayMs = Math.min(releaseMsMax, Math.max(releaseMsMin, untilTurnMs / 2));
    const dueSecond = Math.ceil((now + delayMs) / 1_000);
    this.#released.set(dueSecond, (this.#released.get(dueSecond) ?? 0) + 1);
    return delayMs;
  }

  /** How many released events are not due yet. */
  #countReleased(now: number): number {
    let count = 0;
    for (const [dueSecond, events] of this.#released) {
      if (dueSecond * 1_000 <= now) this.#released.delete(dueSecond);
      else count += events;
    }
    return count;
  }

  #refill(now: number): void {
    const tokens = this.#tokens + ((now - this.#refilledAt) / 1_000) * this.#rateMax;
    this.#tokens = Math.min(this.#tokensMax, tokens);
    this.#refilledAt = now;
  }
}
