import { untilAborted } from './failure.ts';

/** The calls of `publish` that have not returned yet, for `close` to wait for. */
export class InFlightCalls {
  readonly #calls = new Set<Promise<unknown>>();

  async add<T>(call: Promise<T>): Promise<T> {
    this.#calls.add(call);
    try {
      return await call;
    } finally {
      this.#calls.delete(call);
    }
  }

  /** Resolves when all have returned, or after that time. */
  async settled(timeoutMs: number): Promise<void> {
    await untilAborted(Promise.allSettled(this.#calls), AbortSignal.timeout(timeoutMs)).catch(() => {});
  }
}
