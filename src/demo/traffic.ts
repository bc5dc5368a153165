import { setTimeout as sleep } from 'node:timers/promises';
import type { OrderService } from './order-service.ts';

export const writersMax = 6;
/** Transactions per second of all writers: a wave between these two, modest for a laptop. */
const rateMin = 220;
const rateMax = 420;
const wavePeriodMs = 5_000;

/** Runs several concurrent writers for the given time. */
export async function writeOrders(service: OrderService, durationMs: number, signal: AbortSignal): Promise<void> {
  const startedAt = performance.now();
  const write = async () => {
    for (;;) {
      const before = performance.now();
      const elapsedMs = before - startedAt;
      if (elapsedMs >= durationMs) return;
      signal.throwIfAborted();
      await service.work();
      const pauseMs = ((writersMax * 1_000) / rateAt(elapsedMs)) * (0.5 + Math.random());
      const restMs = Math.min(pauseMs - (performance.now() - before), startedAt + durationMs - performance.now());
      if (restMs > 0) await sleep(restMs, undefined, { signal });
    }
  };
  await Promise.all(Array.from({ length: writersMax }, write));
}

function rateAt(elapsedMs: number): number {
  const wave = (1 - Math.cos((2 * Math.PI * elapsedMs) / wavePeriodMs)) / 2;
  return rateMin + (rateMax - rateMin) * wave;
}
