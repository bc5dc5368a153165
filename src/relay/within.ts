import { setTimeout as sleep } from 'node:timers/promises';

/** Waits for the promise, but no longer than this. */
export async function within(ms: number, promise: Promise<unknown>): Promise<void> {
  const timer = new AbortController();
  await Promise.race([promise, sleep(Math.max(0, ms), undefined, { signal: timer.signal }).catch(() => {})]);
  timer.abort();
}
