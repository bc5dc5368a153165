import os from 'node:os';
import pg from 'pg';
import type { Backlog, Contender, Settings, Target } from '../contenders/contender.ts';
import { contenders } from '../contenders/registry.ts';
import { build, contenderNode, installPeers, packageAt } from '../peers.ts';
import { compare, type Measurement, median, rounded } from '../report.ts';
import { type Drained, runChild } from '../run-child.ts';
import { type Server, startServer } from '../server.ts';
import { type BenchOptions, type Suite, UsageError } from './suite.ts';

/** Each has to be beaten, order per aggregate and all. */
const goals: Record<string, number> = { 'graphile-worker-local-queue': 1, 'pg-boss-batch': 1 };

/**
 * How fast one process empties a backlog through a no-op handler.
 *
 * Every drain starts alike: a database of its own, filled, vacuumed, analysed and checkpointed, and a process of its
 * own. Rounds are interleaved (ours, theirs, ours, theirs), so that a slow minute of the machine hits all alike, and a
 * figure is the median of its rounds. The clock runs from the first claim to the last settled event (child.ts);
 * starting up is excluded for all and told apart as `startupMs`.
 */
export const drain: Suite = {
  name: 'drain',
  summary: 'one process drains a backlog through a no-op handler: Postcommit, graphile-worker, pg-boss',

  async run(options) {
    const entrants = choose(options);
    warnIfBusy();
    installPeers();
    const node = contenderNode();
    if (entrants.some(({ name }) => name === 'postcommit')) build();
    const server = await startServer(options.databaseUrl);
    try {
      const results = new Map<string, Drained[]>(entrants.map(({ name }) => [name, []]));
      for (let round = 1; round <= options.rounds; round++) {
        for (const contender of entrants) {
          const drained = await drainOnce(server, node, contender, options);
          results.get(contender.name)?.push(drained);
          console.error(
            `round ${round} of ${options.rounds}: ${contender.name} ${Math.round(rateOf(drained, options)).toLocaleString('en')} events/s`,
          );
        }
      }
      return report(entrants, results, options, server);
    } finally {
      await server.stop();
    }
  },
};

function warnIfBusy(): void {
  const [load = 0] = os.loadavg();
  if (load < os.availableParallelism() / 2) return;
  console.error(`The load average is ${load.toFixed(1)}: something else is running here and will blur the figures.`);
}

function choose({ only, overrides }: BenchOptions): Contender[] {
  const known = contenders.map(({ name }) => name);
  for (const name of [...only, ...Object.keys(overrides)]) {
    if (!known.includes(name))
      throw new UsageError(`There is no contender "${name}" in drain; there are ${known.join(', ')}.`);
  }
  return contenders.filter(({ name }) => only.length === 0 || only.includes(name));
}

function settingsOf(contender: Contender, { overrides }: BenchOptions): Settings {
  return { ...contender.settings, ...overrides[contender.name] };
}

async function drainOnce(server: Server, node: string, contender: Contender, options: BenchOptions): Promise<Drained> {
  const { events, payloadBytes, aggregates, interrupted } = options;
  const database = `postcommit_bench_${process.pid}`;
  const target: Target = {
    connectionString: await server.createDatabase(database),
    backlog: { events, payloadBytes, aggregates },
    settings: settingsOf(contender, options),
  };
  const db = new pg.Client({ connectionString: target.connectionString });
  try {
    await runChild(node, { phase: 'fill', contender: contender.name, target }, interrupted);
    await db.connect();
    // Otherwise whoever comes first pays for hint bits, missing statistics and a checkpoint of the fill.
    await db.query('vacuum (analyze)');
    await db.query('checkpoint');
    const drained = (await runChild(
      node,
      { phase: 'drain', contender: contender.name, target },
      interrupted,
    )) as Drained;
    await verify(db, contender, target.backlog, drained);
    return drained;
  } finally {
    await db.end();
    await server.dropDatabase(database);
  }
}

/** A round in which an event was lost, repeated or left over measures something else: it fails the benchmark. */
async function verify(db: pg.Client, contender: Contender, backlog: Backlog, drained: Drained): Promise<void> {
  const remaining = await contender.remaining(db, backlog);
  if (remaining !== 0) throw new Error(`${contender.name}: ${remaining} of ${backlog.events} events are not settled.`);
  if (drained.calls !== backlog.events) {
    throw new Error(`${contender.name}: ${drained.calls} handler calls for ${backlog.events} events.`);
  }
}

const rateOf = ({ drainMs }: Drained, { events }: BenchOptions): number => (events / drainMs) * 1_000;

function report(
  entrants: Contender[],
  results: Map<string, Drained[]>,
  options: BenchOptions,
  server: Server,
): Measurement[] {
  const measured = entrants.map((contender): Measurement => {
    const rounds = results.get(contender.name) ?? [];
    const rates = rounds.map((drained) => rateOf(drained, options));
    const { name: packageName, version } = packageAt(contender.packageJson);
    return {
      suite: 'drain',
      name: contender.name,
      value: rounded(median(rates)),
      unit: 'events/s',
      rounds: rates.map(rounded),
      details: { startupMs: rounded(median(rounds.map(({ startupMs }) => startupMs))) },
      versions: {
        node: rounds[0]?.node ?? '',
        postgres: server.version,
        [packageName]: version,
      },
      settings: {
        events: options.events,
        payloadBytes: options.payloadBytes,
        aggregates: options.aggregates,
        rounds: options.rounds,
        processes: 1,
        cpus: os.availableParallelism(),
        ...settingsOf(contender, options),
      },
    };
  });
  const ours = measured.find(({ name }) => name === 'postcommit');
  const comparisons = measured.flatMap((theirs) => {
    const goal = goals[theirs.name];
    return ours && goal !== undefined ? [compare(ours, theirs, goal)] : [];
  });
  return [...measured, ...comparisons];
}
