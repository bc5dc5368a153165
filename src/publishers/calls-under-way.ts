import { untilAborted } from './failure.ts';

/** The calls of `publish` that have not answered yet, for `close` to wait for. */
export class CallsUnderWay {
  readonly #calls = new Set<Promise<unknown>>();

  async add<T>(call: Promise<T>): Promise<T> {
    this.#calls.add(call);
    try {
      return await call;
    } finally {
      this.#calls.delete(call);
    }
  }

  /** Resolves when all have answered, or after that time. */
  async settled(timeoutMs: number): Promise<void> {
    await untilAborted(Promise.allSettled(this.#calls), AbortSignal.timeout(timeoutMs)).catch(() => {});
  }
}
