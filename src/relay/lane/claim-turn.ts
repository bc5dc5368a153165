import { LostClaims } from './lost-claims.ts';
import { LowWater } from './low-water.ts';

/**
 * What the lanes of one relay share. They claim one after the other, and each passes its events on before the next one claims:
 * an event is claimed when its predecessor belongs to this relay, perhaps in another queue, and must not reach the dispatcher
 * before it. `ClaimHistory` relies on the same.
 */
export class ClaimTurn {
  readonly lowWater = new LowWater();
  readonly lostClaims = new LostClaims();
  /** How many claims were begun, and how many of these have ended, with their events passed on. */
  begun = 0;
  ended = 0;
  readonly #onEnded: () => void;
  #isTaken = false;
  readonly #waiting: (() => void)[] = [];

  /** `onEnded` is called when a claim has ended. */
  constructor(onEnded: () => void = () => {}) {
    this.#onEnded = onEnded;
  }

  /** Runs a claim when those that came before have ended. */
  async run<T>(claim: () => Promise<T>): Promise<T> {
    if (this.#isTaken) await new Promise<void>((resolve) => this.#waiting.push(resolve));
    this.#isTaken = true;
    this.begun++;
    try {
      return await claim();
    } finally {
      this.ended++;
      this.#onEnded();
      const next = this.#waiting.shift();
      if (next === undefined) this.#isTaken = false;
      else next();
    }
  }
}
