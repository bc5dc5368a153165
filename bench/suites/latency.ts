import pg from 'pg';
import type { Contender, Target } from '../contenders/contender.ts';
import { graphileWorkerDefault, graphileWorkerLocalQueue } from '../contenders/graphile-worker.ts';
import { createOrdersSql } from '../contenders/orders.ts';
import { pgBossNotify } from '../contenders/pg-boss.ts';
import { postcommit } from '../contenders/postcommit.ts';
import { fill } from '../drain-once.ts';
import type { EmitterReport, EmitterTask } from '../latency/emitter.ts';
import type { WorkerReport, WorkerTask } from '../latency/worker.ts';
import { machine } from '../machine.ts';
import { packageAt } from '../peers.ts';
import { makeReady } from '../ready.ts';
import { compare, type Measurement, median, percentile, rounded } from '../report.ts';
import { forkChild } from '../run-child.ts';
import { type Server, startServer } from '../server.ts';
import { type BenchOptions, chosen, type Suite } from './suite.ts';

const contenders: readonly Contender[] = [postcommit, graphileWorkerDefault, graphileWorkerLocalQueue, pgBossNotify];
const toBeat: readonly Contender[] = [graphileWorkerDefault, graphileWorkerLocalQueue];

const defaults = { perSecond: 100, turnsPerRound: 2, orders: 1_000, warmUpOrders: 2_000 };

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
 * and one event. Emitter and worker are two processes on one machine, so one clock serves both. Contenders take turns,
 * one at a time, each time in new processes and a database of its own. What is measured is a service that has run for a
 * while: in its first thousand events, both processes of everybody mostly compile.
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
      const { turnsPerRound } = settingsOf(options);
      for (let turn = 0; turn < options.rounds * turnsPerRound; turn++) {
        const round = Math.floor(turn / turnsPerRound);
        // Everybody goes first in turn: what a minute does to the machine should not always meet the same one.
        const first = turn % entrants.length;
        for (const contender of [...entrants.slice(first), ...entrants.slice(0, first)]) {
          const measured = await measure(server, node, contender, options);
          const rounds = results.get(contender) as Round[];
          rounds[round] = { ...measured, samples: [...(rounds[round]?.samples ?? []), ...measured.samples] };
          const since = measured.samples.map(({ sinceCommittedMs }) => sinceCommittedMs);
          const [p50, p99] = [0.5, 0.99].map((share) => percentile(since, share).toFixed(2));
          console.error(`round ${round + 1} of ${options.rounds}: ${contender.name} p50 ${p50} ms, p99 ${p99} ms`);
        }
      }
      return report(results, server, options);
    } finally {
      await server.stop();
    }
  },
};

const settingsOf = (options: BenchOptions) => ({ ...defaults, ...options.overrides.latency });

async function measure(server: Server, node: string, contender: Contender, options: BenchOptions): Promise<Round> {
  const { perSecond, orders, warmUpOrders } = settingsOf(options);
  const database = `postcommit_bench_${process.pid}`;
  const target: Target = {
    connectionString: await server.createDatabase(database),
    backlog: { events: 0, payloadBytes: options.payloadBytes, aggregates: options.aggregates },
    settings: { ...contender.settings, ...options.overrides[contender.name] },
  };
  const { interrupted } = options;
  const db = new pg.Client({ connectionString: target.connectionString });
  try {
    await fill(node, contender, target, interrupted);
    await db.connect();
    await db.query(createOrdersSql);
    await db.query('checkpoint');
    const all = orders + warmUpOrders;
    const timeoutMs = 60_000 + warmUpOrders * 20 + (orders / perSecond) * 2_000;
    const workerTask: WorkerTask = { contender: contender.name, target, orders: all };
    const emitterTask: EmitterTask = { contender: contender.name, target, warmUpOrders, orders, perSecond };
    // If one fails the other would wait for ever.
    const failed = new AbortController();
    const ended = AbortSignal.any([interrupted, failed.signal]);
    const run = (file: string, task: object, onNote?: () => void) =>
      forkChild(node, new URL(`../latency/${file}`, import.meta.url), task, {
        what: `${contender.name} ${file}`,
        timeoutMs,
        interrupted: ended,
        ...(onNote && { onNote }),
      }).catch((error) => {
        failed.abort();
        throw error;
      });
    let emitter: Promise<unknown> | undefined;
    const worker = (await run('worker.ts', workerTask, () => {
      emitter = run('emitter.ts', emitterTask);
      emitter.catch(() => {}); // Awaited below.
    })) as WorkerReport;
    return { node: worker.node, samples: samples(contender, worker, (await emitter) as EmitterReport, warmUpOrders) };
  } finally {
    await db.end();
    await server.dropDatabase(database);
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
      value: rounded(median(values)),
      unit: 'ms',
      rounds: values.map(rounded),
      details: { sinceCommitSentMs: rounded(median(of(({ sinceCommitSentMs }) => sinceCommitSentMs))) },
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
  const shares = [0.5, 0.99];
  const entrants = [...results.keys()];
  // One mode for both figures: nobody runs one for p50 and another for p99.
  const best = entrants
    .filter((contender) => toBeat.includes(contender))
    .sort((a, b) => figure(a, 0.5).value - figure(b, 0.5).value)[0];
  const comparisons = shares.flatMap((share) => {
    if (!entrants.includes(postcommit)) return [];
    const rivals = entrants.filter((contender) => contender !== postcommit);
    return rivals.map((rival) =>
      compare(figure(postcommit, share), figure(rival, share), rival === best ? { atMost: 1 } : undefined),
    );
  });
  return [...entrants.flatMap((contender) => shares.map((share) => figure(contender, share))), ...comparisons];
}
