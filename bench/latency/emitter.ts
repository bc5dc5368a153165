// Emits orders when it is told to, in a process of its own. Answers by IPC when each was committed.
import { once } from 'node:events';
import { setTimeout as sleep } from 'node:timers/promises';
import { monotonicMs } from '../clock.ts';
import type { CommitTimes, Emitter, Target } from '../contenders/contender.ts';
import { contenderNamed } from '../contenders/registry.ts';

export interface EmitterTask {
  contender: string;
  target: Target;
}

/** So many orders, at a rate or, without one, one right after the other. None: it is over. */
export interface Turn {
  orders: number;
  perSecond?: number;
}

export interface EmitterReport {
  /** By order, from 1 on. */
  committed: CommitTimes[];
}

async function emitAll({ contender: name, target }: EmitterTask): Promise<EmitterReport> {
  const contender = contenderNamed(name);
  if (!contender.connectEmitter) throw new Error(`${name} cannot emit.`);
  const emitter = await contender.connectEmitter(target);
  const committed: CommitTimes[] = [];
  for (let note = 'ready'; ; note = 'emitted') {
    process.send?.({ note });
    const [turn] = (await once(process, 'message')) as [Turn];
    if (turn.orders === 0) break;
    await emitTurn(emitter, turn, committed);
  }
  await emitter.stop();
  return { committed };
}

async function emitTurn(emitter: Emitter, { orders, perSecond }: Turn, committed: CommitTimes[]): Promise<void> {
  const startedAtMs = monotonicMs();
  for (let order = 1; order <= orders; order++) {
    if (perSecond !== undefined) {
      // Somewhere within its interval: a steady beat would meet timers of the worker always in the same phase.
      const dueInMs = startedAtMs + ((order + Math.random()) * 1_000) / perSecond - monotonicMs();
      if (dueInMs > 0) await sleep(dueInMs);
    }
    committed.push(await emitter.emit(committed.length + 1));
  }
}

const report = await emitAll(JSON.parse(process.argv[2] ?? '') as EmitterTask);
process.send?.(report, () => process.exit(0));
