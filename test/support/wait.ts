import { setTimeout as sleep } from 'node:timers/promises';

const pollMs = 7;

export interface UntilOptions {
  /** Default 10 s. */
  timeoutMs?: number;
  /** What is waited for, as the failure names it: "the backlog is empty". */
  what: string;
}

type Truthy<T> = Exclude<T, false | null | undefined | 0 | ''>;

/**
 * Waits until `condition` answers something truthy and returns that. A condition that throws is asked again; its last
 * error becomes the cause of the failure, so a condition may be an `expect`-style assertion.
 */
export async function until<T>(
  condition: () => T | Promise<T>,
  { timeoutMs = 10_000, what }: UntilOptions,
): Promise<Truthy<T>> {
  const deadline = performance.now() + timeoutMs;
  for (;;) {
    let last: unknown;
    let cause: unknown;
    try {
      last = await condition();
      if (last) return last as Truthy<T>;
    } catch (error) {
      cause = error;
    }
    if (performance.now() >= deadline) {
      const seen = cause instanceof Error ? cause.message : `last answer ${String(last)}`;
      throw new Error(`waited ${timeoutMs} ms in vain until ${what} (${seen})`, { cause });
    }
    await sleep(pollMs);
  }
}

export interface Deferred<T> {
  promise: Promise<T>;
  resolve(value: T): void;
  reject(error: unknown): void;
  /** Whether it was resolved or rejected already. */
  readonly settled: boolean;
}

export function deferred<T = void>(): Deferred<T> {
  let settled = false;
  let resolve!: (value: T) => void;
  let reject!: (error: unknown) => void;
  const promise = new Promise<T>((yes, no) => {
    resolve = yes;
    reject = no;
  });
  // A test may look at it late, or never; that is no unhandled rejection.
  promise.catch(() => {});
  return {
    promise,
    resolve(value) {
      settled = true;
      resolve(value);
    },
    reject(error) {
      settled = true;
      reject(error);
    },
    get settled() {
      return settled;
    },
  };
}

/** `promise`, or a failure that names what was awaited. */
export async function within<T>(promise: Promise<T>, { timeoutMs = 10_000, what }: UntilOptions): Promise<T> {
  const overdue = new AbortController();
  try {
    return await Promise.race([
      promise,
      sleep(timeoutMs, undefined, { signal: overdue.signal }).then(() => {
        throw new Error(`waited ${timeoutMs} ms in vain until ${what}`);
      }),
    ]);
  } finally {
    overdue.abort();
  }
}

interface Listenable {
  once(event: string, listener: (...values: never[]) => void): unknown;
}

/** The next `event` of an emitter, with its first argument. */
export function nextEvent<T = unknown>(emitter: Listenable, event: string, timeoutMs = 10_000): Promise<T> {
  const seen = deferred<T>();
  emitter.once(event, (value: T) => seen.resolve(value));
  return within(seen.promise, { timeoutMs, what: `the event '${event}' came` });
}
