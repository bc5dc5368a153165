// Handles what the emitter emits, in a process of its own. Answers by IPC when each handler was entered.
import { setTimeout as sleep } from 'node:timers/promises';
import { monotonicMs } from '../clock.ts';
import type { Target } from '../contenders/contender.ts';
import { contenderNamed } from '../contenders/registry.ts';

export interface WorkerTask {
  contender: string;
  target: Target;
  orders: number;
}

export interface WorkerReport {
  node: string;
  /** Order and time of every call, in the order of the calls. */
  calls: [order: number, enteredAtMs: number][];
}

/** After the last arrival, so that an event delivered twice is seen. */
const lingerMs = 200;

async function handleAll({ contender: name, target, orders }: WorkerTask): Promise<WorkerReport> {
  const contender = contenderNamed(name);
  const calls: WorkerReport['calls'] = [];
  let allHandled = () => {};
  const handled = new Promise<void>((resolve) => {
    allHandled = resolve;
  });
  const running = await contender.start(target, (_id, event) => {
    const enteredAtMs = monotonicMs();
    calls.push([contender.orderOf?.(event) ?? Number.NaN, enteredAtMs]);
    if (calls.length === orders) allHandled();
  });
  process.send?.({ note: 'ready' });
  await handled;
  await sleep(lingerMs);
  await running.stop();
  return { node: process.version, calls };
}

const report = await handleAll(JSON.parse(process.argv[2] ?? '') as WorkerTask);
process.send?.(report, () => process.exit(0));
