import { setTimeout as sleep } from 'node:timers/promises';

/** Waits for the promise, but no longer than `ms`. */
export async function withTimeout(ms: number, promise: Promise<unknown>): Promise<void> {
  const timer = new AbortController();
  await Promise.race([promise, sleep(Math.max(0, ms), undefined, { signal: timer.signal }).catch(() => {})]);
  timer.abort();
}

/** Why a call failed, even when it did not answer in time or threw synchronously; `undefined` if it succeeded. */
export async function failureWithin(ms: number, call: () => Promise<unknown>): Promise<unknown> {
  let failure: unknown = new Error(`no answer within ${ms} ms`);
  const answered = (async () => call())().then(
    () => {
      failure = undefined;
    },
    (error) => {
      failure = error ?? new Error('no reason given');
    },
  );
  await withTimeout(ms, answered);
  return failure;
}
