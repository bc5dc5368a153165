/** Aggregates the events are spread over. Those with an even number also go to the webhook. */
export const aggregates = 40;
export const payloadBytesMin = 100;
export const payloadBytesMax = 5_000_000;

export interface SoakPayload {
  /** The position in its aggregate, from 1. */
  n: number;
  /** The length of `pad`: whoever gets the event compares. */
  padLength: number;
  pad: string;
}

export const goesToWebhook = (aggregateId: string): boolean => Number(aggregateId) % 2 === 0;

/** Payloads from 100 bytes to 5 MB, evenly spread by order of magnitude. One in ten has characters beyond Latin-1. */
export class EventSource {
  readonly #random: () => number;
  readonly #text: string;
  readonly #emitted = new Map<string, number>();

  constructor(seed: number) {
    this.#random = mulberry32(seed);
    // A slice of it is a payload: to make megabytes of random text for each would take most of the run's time.
    this.#text = Array.from({ length: payloadBytesMax / 8 }, () =>
      Math.floor(this.#random() * 2 ** 40)
        .toString(32)
        .padStart(8, '0'),
    ).join('');
  }

  /** How many events each aggregate has. */
  get emitted(): ReadonlyMap<string, number> {
    return this.#emitted;
  }

  next(): { aggregateId: string; payload: SoakPayload } {
    const aggregateId = String(Math.floor(this.#random() * aggregates));
    const n = (this.#emitted.get(aggregateId) ?? 0) + 1;
    this.#emitted.set(aggregateId, n);
    const length = Math.round(payloadBytesMin * (payloadBytesMax / payloadBytesMin) ** this.#random());
    const from = Math.floor(this.#random() * (this.#text.length - length));
    const pad = this.#text.slice(from, from + length) + (this.#random() < 0.1 ? '€' : '');
    return { aggregateId, payload: { n, padLength: pad.length, pad } };
  }
}

/** A generator that yields the same numbers in [0, 1) for the same seed. */
function mulberry32(seed: number): () => number {
  let state = seed >>> 0;
  return () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let mixed = state;
    mixed = Math.imul(mixed ^ (mixed >>> 15), mixed | 1);
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
  };
}
