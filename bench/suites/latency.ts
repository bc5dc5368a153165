import type { Contender } from '../contenders/contender.ts';
import { graphileWorkerDefault, graphileWorkerLocalQueue } from '../contenders/graphile-worker.ts';
import { pgBossNotify } from '../contenders/pg-boss.ts';
import { postcommit } from '../contenders/postcommit.ts';
import { type Round, runRound, type Sample, type TurnSettings } from '../latency/round.ts';
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

const defaults: TurnSettings = { perSecond: 100, turnsPerRound: 36, ordersPerTurn: 100, warmUpOrders: 3_000 };

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
      const settings = settingsOf(options);
      for (let round = 1; round <= options.rounds; round++) {
        for (const [contender, measured] of await runRound({
          server,
          node,
          entrants: shuffled(entrants, random),
          random,
          options,
          settings,
        })) {
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
