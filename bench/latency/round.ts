import { setTimeout as sleep } from 'node:timers/promises';
import type { Contender } from '../contenders/contender.ts';
import type { Server } from '../server.ts';
import { shuffled } from '../shuffled.ts';
import type { BenchOptions } from '../suites/suite.ts';
import type { EmitterReport } from './emitter.ts';
import { Pair } from './pair.ts';
import type { WorkerReport } from './worker.ts';

/** A type and not an interface, so that it is also what `--set` takes. */
export type TurnSettings = {
  perSecond: number;
  turnsPerRound: number;
  ordersPerTurn: number;
  warmUpOrders: number;
};

export interface RoundOptions {
  server: Server;
  node: string;
  entrants: readonly Contender[];
  random: () => number;
  options: BenchOptions;
  settings: TurnSettings;
}

/** Between two turns: what one leaves to be done afterwards should not fall into the next. */
const pauseMs = 100;
/** And for the workers to be done with the warm-up. */
const warmUpEndsMs = 1_000;

export interface Sample {
  /** From the answer to COMMIT, and from just before COMMIT was sent, to the handler's first line. */
  sinceCommittedMs: number;
  sinceCommitSentMs: number;
}

export interface Round {
  samples: Sample[];
  node: string;
}

/** New processes and databases for all, that warm up and then take turns in random order. */
export async function runRound({
  server,
  node,
  entrants,
  random,
  options,
  settings,
}: RoundOptions): Promise<Map<Contender, Round>> {
  const { perSecond, turnsPerRound, ordersPerTurn, warmUpOrders } = settings;
  const orders = warmUpOrders + turnsPerRound * ordersPerTurn;
  const timeoutMs = 60_000 + entrants.length * (30_000 + warmUpOrders * 20 + (orders / perSecond) * 2_000);
  const pairs = entrants.map((contender, index) => {
    const target = {
      backlog: { events: 0, payloadBytes: options.payloadBytes, aggregates: options.aggregates },
      settings: { ...contender.settings, ...options.overrides[contender.name] },
    };
    const database = `postcommit_bench_${process.pid}_${index}`;
    const { interrupted } = options;
    return { contender, pair: new Pair({ node, server, database, contender, target, orders, timeoutMs, interrupted }) };
  });
  const started: Pair[] = [];
  try {
    for (const { pair } of pairs) {
      started.push(pair);
      await pair.start();
      if (warmUpOrders > 0) await pair.emit({ orders: warmUpOrders });
      await sleep(warmUpEndsMs);
    }
    for (let turn = 0; turn < turnsPerRound; turn++) {
      for (const { pair } of shuffled(pairs, random)) {
        await pair.emit({ orders: ordersPerTurn, perSecond });
        await sleep(pauseMs);
      }
    }
    const rounds = new Map<Contender, Round>();
    for (const { contender, pair } of pairs) {
      const [worker, emitter] = await pair.finish();
      rounds.set(contender, { node: worker.node, samples: samples(contender, worker, emitter, warmUpOrders) });
    }
    return rounds;
  } finally {
    for (const pair of started) await pair.close();
  }
}

/** Every order exactly once: anything else measures something else, and fails the benchmark. */
function samples(
  { name }: Contender,
  { calls }: WorkerReport,
  { committed }: EmitterReport,
  warmUpOrders: number,
): Sample[] {
  const enteredAtMs = new Map(calls);
  if (calls.length !== committed.length || enteredAtMs.size !== committed.length) {
    throw new Error(`${name}: ${calls.length} handler calls for ${enteredAtMs.size} of ${committed.length} orders.`);
  }
  return committed
    .map((times, index) => {
      const entered = enteredAtMs.get(index + 1) ?? Number.NaN;
      return {
        sinceCommittedMs: entered - times.committedAtMs,
        sinceCommitSentMs: entered - times.commitSentAtMs,
      };
    })
    .slice(warmUpOrders);
}
