import { setTimeout as sleep } from 'node:timers/promises';
import type { Contender } from '../contenders/contender.ts';
import { graphileWorkerDefault, graphileWorkerLocalQueue } from '../contenders/graphile-worker.ts';
import { pgBossNotify } from '../contenders/pg-boss.ts';
import { postcommit } from '../contenders/postcommit.ts';
import type { EmitterReport } from '../latency/emitter.ts';
import { Pair } from '../latency/pair.ts';
import type { WorkerReport } from '../latency/worker.ts';
import { machine } from '../machine.ts';
import { packageAt } from '../peers.ts';
import { median } from '../ratio.ts';
import { makeReady } from '../ready.ts';
import { compare, type Goal, type Measurement, percentile } from '../report.ts';
import { type Server, startServer } from '../server.ts';
import { seededRandom, shuffled } from '../shuffled.ts';
import { type BenchOptions, chosen, type Suite } from './suite.ts';

const contenders: readonly Contender[] = [postcommit, graphileWorkerDefault, graphileWorkerLocalQueue, pgBossNotify];
const toBeat: readonly Contender[] = [graphileWorkerDefault, graphileWorkerLocalQueue];

const defaults = { perSecond: 100, turnsPerRound: 36, ordersPerTurn: 100, warmUpOrders: 3_000 };
/** Between two turns: what one leaves to be done afterwards should not fall into the next. */
const pauseMs = 100;
/** And for the workers to be done with the warm-up. */
const warmUpEndsMs = 1_000;

interface Sample {
  /** From the answer to COMMIT, and from just before COMMIT was sent, to the handler's first line. */
  sinceCommittedMs: number;
  sinceCommitSentMs: number;
}

interface Round {
  samples: Sample[];
  node: string;
}

/**
 * How long after its commit an event reaches its handler at a hundred transactions a second, each with a business row
 * and one event. Emitter and worker are two processes on one machine, so one clock serves both. In each round there are new
 * processes and databases for all, that warm up and then take turns of a second, in random order: the machine changes from
 * one minute to the next by more than what is to be told apart.
 */
export const latency: Suite = {
  name: 'latency',
  summary: 'commit to handler at 100 transactions a second, emitter and worker in two processes',
  names: contenders.map(({ name }) => name),
  settings: defaults,

  async run(options) {
    const node = makeReady();
    const server = await startServer(options.databaseUrl);
    try {
      const entrants = chosen(contenders, options);
      const results = new Map<Contender, Round[]>(entrants.map((contender) => [contender, []]));
      const random = seededRandom(options.seed);
      for (let round = 1; round <= options.rounds; round++) {
        for (const [contender, measured] of await runRound(server, node, shuffled(entrants, random), random, options)) {
          results.get(contender)?.push(measured);
          const since = measured.samples.map(({ sinceCommittedMs }) => sinceCommittedMs);
          const [p50, p99] = [0.5, 0.99].map((share) => percentile(since, share).toFixed(2));
          console.error(`round ${round} of ${options.rounds}: ${contender.name} p50 ${p50} ms, p99 ${p99} ms`);
        }
      }
      return report(results, server, options);
    } finally {
      await server.stop();
    }
  },
};

const settingsOf = (options: BenchOptions) => ({ ...defaults, ...options.overrides.latency });

async function runRound(
  server: Server,
  node: string,
  entrants: readonly Contender[],
  random: () => number,
  options: BenchOptions,
): Promise<Map<Contender, Round>> {
  const { perSecond, turnsPerRound, ordersPerTurn, warmUpOrders } = settingsOf(options);
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

function report(results: Map<Contender, Round[]>, server: Server, options: BenchOptions): Measurement[] {
  const figure = (contender: Contender, share: number): Measurement => {
    const rounds = results.get(contender) ?? [];
    const of = (pick: (sample: Sample) => number) => rounds.map(({ samples }) => percentile(samples.map(pick), share));
    const values = of(({ sinceCommittedMs }) => sinceCommittedMs);
    const { name, version } = packageAt(contender.packageJson);
    return {
      suite: 'latency',
      name: `${contender.name}, p${share * 100}`,
      value: median(values),
      unit: 'ms',
      rounds: values,
      details: { sinceCommitSentMs: median(of(({ sinceCommitSentMs }) => sinceCommitSentMs)) },
      versions: { node: rounds[0]?.node ?? '', postgres: server.version, [name]: version },
      settings: {
        payloadBytes: options.payloadBytes,
        rounds: options.rounds,
        ...settingsOf(options),
        ...machine(),
        ...contender.settings,
        ...options.overrides[contender.name],
      },
    };
  };
  const goals = new Map<number, Goal>([
    [0.5, { atMost: 1, next: 0.85 }],
    [0.99, { atMost: 1, next: 0.9 }],
  ]);
  const shares = [...goals.keys()];
  const entrants = [...results.keys()];
  // One mode for both figures: nobody runs one for p50 and another for p99.
  const best = entrants
    .filter((contender) => toBeat.includes(contender))
    .sort((a, b) => figure(a, 0.5).value - figure(b, 0.5).value)[0];
  const comparisons = shares.flatMap((share) => {
    if (!entrants.includes(postcommit)) return [];
    const rivals = entrants.filter((contender) => contender !== postcommit);
    return rivals.map((rival) =>
      compare(figure(postcommit, share), figure(rival, share), rival === best ? goals.get(share) : undefined),
    );
  });
  return [...entrants.flatMap((contender) => shares.map((share) => figure(contender, share))), ...comparisons];
}
