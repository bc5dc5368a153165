// Emits orders at a steady rate, in a process of its own. Answers by IPC when each was committed.
import { setTimeout as sleep } from 'node:timers/promises';
import { monotonicMs } from '../clock.ts';
import type { CommitTimes, Target } from '../contenders/contender.ts';
import { contenderNamed } from '../contenders/registry.ts';

export interface EmitterTask {
  contender: string;
  target: Target;
  /** Emitted first, one right after the other. */
  warmUpOrders: number;
  orders: number;
  perSecond: number;
}

/** Time for the worker to be done with the warm-up. */
const warmUpEndsMs = 1_000;

export interface EmitterReport {
  /** By order, from 1 on. */
  committed: CommitTimes[];
}

async function emitAll(task: EmitterTask): Promise<EmitterReport> {
  const { contender: name, target, warmUpOrders, orders, perSecond } = task;
  const contender = contenderNamed(name);
  if (!contender.connectEmitter) throw new Error(`${name} cannot emit.`);
  const emitter = await contender.connectEmitter(target);
  const everyMs = 1_000 / perSecond;
  const committed: CommitTimes[] = [];
  for (let order = 1; order <= warmUpOrders; order++) committed.push(await emitter.emit(order));
  await sleep(warmUpEndsMs);
  const startedAtMs = monotonicMs();
  for (let order = 1; order <= orders; order++) {
    // Somewhere within its interval: a steady beat would meet timers of the worker always in the same phase.
    const dueInMs = startedAtMs + (order + Math.random()) * everyMs - monotonicMs();
    if (dueInMs > 0) await sleep(dueInMs);
    committed.push(await emitter.emit(warmUpOrders + order));
  }
  await emitter.stop();
  return { committed };
}

const report = await emitAll(JSON.parse(process.argv[2] ?? '') as EmitterTask);
process.send?.(report, () => process.exit(0));
