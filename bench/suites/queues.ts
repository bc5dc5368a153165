import type { Contender } from '../contenders/contender.ts';
import { postcommit } from '../contenders/postcommit.ts';
import { postcommitFullReports } from '../contenders/postcommit-queues.ts';
import { type Round, runRound, type TurnSettings } from '../latency/round.ts';
import { machine } from '../machine.ts';
import { packageAt } from '../peers.ts';
import { median } from '../ratio.ts';
import { makeReady } from '../ready.ts';
import { compare, type Measurement, percentile } from '../report.ts';
import { type Server, startServer } from '../server.ts';
import { seededRandom, shuffled } from '../shuffled.ts';
import type { BenchOptions, Suite } from './suite.ts';

const entrants: readonly Contender[] = [postcommit, postcommitFullReports];
const defaults: TurnSettings = { perSecond: 100, turnsPerRound: 20, ordersPerTurn: 100, warmUpOrders: 2_000 };
const shares = [0.5, 0.99];

/**
 * What a queue that is full of work for an hour costs another queue: commit to handler of the queue `default` at a hundred
 * transactions a second, with one queue, and beside the queue `reports` with 1,000 events of which two are under way. Measured as
 * in the suite `latency`.
 */
export const queues: Suite = {
  name: 'queues',
  summary: 'commit to handler beside a queue that is full of hour-long work',
  names: entrants.map(({ name }) => name),
  settings: defaults,

  async run(options) {
    const node = makeReady();
    const server = await startServer(options.databaseUrl);
    try {
      const settings = { ...defaults, ...options.overrides.queues };
      const random = seededRandom(options.seed);
      const results = new Map<Contender, Round[]>(entrants.map((contender) => [contender, []]));
      for (let round = 1; round <= options.rounds; round++) {
        const turns = { server, node, entrants: shuffled(entrants, random), random, options, settings };
        for (const [contender, measured] of await runRound(turns)) {
          results.get(contender)?.push(measured);
          const [p50, p99] = shares.map((share) => percentile(sinceCommitted(measured), share).toFixed(2));
          console.error(`round ${round} of ${options.rounds}: ${contender.name} p50 ${p50} ms, p99 ${p99} ms`);
        }
      }
      const figures = shares.map((share) => entrants.map((each) => figure(each, share, results, server, options)));
      const ratios = figures.map(([alone, beside], index) =>
        compare(beside as Measurement, alone as Measurement, shares[index] === 0.99 ? { atMost: 1.2 } : undefined),
      );
      return [...figures.flat(), ...ratios];
    } finally {
      await server.stop();
    }
  },
};

const sinceCommitted = ({ samples }: Round) => samples.map(({ sinceCommittedMs }) => sinceCommittedMs);

function figure(
  contender: Contender,
  share: number,
  results: ReadonlyMap<Contender, readonly Round[]>,
  server: Server,
  options: BenchOptions,
): Measurement {
  const rounds = results.get(contender) ?? [];
  const values = rounds.map((round) => percentile(sinceCommitted(round), share));
  const { name, version } = packageAt(contender.packageJson);
  return {
    suite: 'queues',
    name: `${contender.name}, p${share * 100}`,
    value: median(values),
    unit: 'ms',
    rounds: values,
    versions: { node: rounds[0]?.node ?? '', postgres: server.version, [name]: version },
    settings: {
      payloadBytes: options.payloadBytes,
      rounds: options.rounds,
      ...defaults,
      ...options.overrides.queues,
      ...machine(),
    },
  };
}
