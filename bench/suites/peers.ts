import type { Contender } from '../contenders/contender.ts';
import { graphileWorkerDefault, graphileWorkerLocalQueue } from '../contenders/graphile-worker.ts';
import { pgBossBatch, pgBossDefault } from '../contenders/pg-boss.ts';
import {
  pgTransactionalOutboxPolling,
  pgTransactionalOutboxReplication,
} from '../contenders/pg-transactional-outbox.ts';
import { postcommit } from '../contenders/postcommit.ts';
import { textbook } from '../contenders/textbook.ts';
import * as figures from '../drain-figures.ts';
import type { Drained } from '../drain-once.ts';
import { costOf, drainInTurns, type Entrant, type EntrantResult, labelOf, rateOf } from '../drain-rounds.ts';
import { oneBacklogContenders, oneBacklogProcesses, oneBacklogReport } from '../one-backlog.ts';
import { makeReady } from '../ready.ts';
import { compare, type Goal, type Measurement } from '../report.ts';
import { type Server, startServer } from '../server.ts';
import type { BenchOptions, Suite } from './suite.ts';

const contenders: readonly Contender[] = [
  postcommit,
  graphileWorkerLocalQueue,
  graphileWorkerDefault,
  pgBossBatch,
  pgBossDefault,
  pgTransactionalOutboxPolling,
  pgTransactionalOutboxReplication,
  textbook,
];

/** Those of which the fastest has to be beaten by a fifth. */
const bestModes = [graphileWorkerLocalQueue, graphileWorkerDefault, pgBossBatch, pgBossDefault];

const goals = new Map<Contender, Goal>([
  [graphileWorkerDefault, { atLeast: 10 }],
  [pgBossDefault, { atLeast: 10 }],
  [pgTransactionalOutboxPolling, { atLeast: 10 }],
  [pgTransactionalOutboxReplication, { atLeast: 10 }],
  [textbook, { atLeast: 7 }],
]);

const defaults = { oneBacklogEvents: 100_000 };

interface Part {
  name: string;
  /** Who takes part, each with these numbers of processes. */
  contenders: readonly Contender[];
  processes: readonly number[];
  options(options: BenchOptions): BenchOptions;
  report(results: readonly EntrantResult[], options: BenchOptions): Measurement[];
}

const parts: readonly Part[] = [
  { name: 'modes', contenders, processes: [1, 2], options: (options) => options, report },
  {
    name: 'one-backlog',
    contenders: oneBacklogContenders,
    processes: oneBacklogProcesses,
    options: (options) => ({ ...options, events: { ...defaults, ...options.overrides.peers }.oneBacklogEvents }),
    report: oneBacklogReport,
  },
];

/**
 * The same drain as in `drain`, for everybody in every mode, with one and with two processes, and what it costs: WAL,
 * processor time and dead rows for each event. Then Postcommit and graphile-worker with one, two and four processes on one
 * backlog. A contender that needs logical replication gets a server of its own, because `wal_level = logical` makes every
 * contender's WAL longer.
 */
export const peers: Suite = {
  name: 'peers',
  summary: 'the same drain for every peer and mode, and for one, two and four processes, with its costs per event',
  names: [...contenders, ...parts].map(({ name }) => name),
  settings: defaults,

  async run(options) {
    const node = makeReady();
    const running = new Map<string, Server>();
    const serverFor = async ({ serverSettings = {} }: Contender): Promise<Server> => {
      const key = JSON.stringify(serverSettings);
      const server = running.get(key) ?? (await startServer(options.databaseUrl, serverSettings));
      running.set(key, server);
      return server;
    };
    try {
      const measurements: Measurement[] = [];
      for (const part of restricted(parts, parts, options)) {
        const entrants: Entrant[] = [];
        for (const contender of restricted(part.contenders, contenders, options)) {
          const server = await serverFor(contender);
          const most = contender.limits?.processes ?? Number.POSITIVE_INFINITY;
          const counts = part.processes.filter((processes) => processes <= most);
          entrants.push(...counts.map((processes) => ({ contender, processes, server })));
        }
        if (entrants.length === 0) continue;
        const own = part.options(options);
        measurements.push(...part.report(await drainInTurns(entrants, node, own), own));
      }
      return measurements;
    } finally {
      for (const server of running.values()) await server.stop();
    }
  },
};

/** `--only` names parts, contenders, or both. `items` are restricted only if something of their `kind` is named. */
function restricted<T extends { name: string }>(
  items: readonly T[],
  kind: readonly { name: string }[],
  { only }: BenchOptions,
): readonly T[] {
  if (!kind.some(({ name }) => only.includes(name))) return items;
  return items.filter(({ name }) => only.includes(name));
}

const details = {
  walBytesPerEvent: figures.walBytesPerEvent,
  cpuMicrosPerEvent: figures.cpuMicrosPerEvent,
  cpuMicrosPerEventWithConnecting: figures.cpuMicrosPerEventWithConnecting,
  clientCpuMicrosPerEvent: figures.clientCpuMicrosPerEvent,
  deadTuplesPerEvent: figures.deadTuplesPerEvent,
  residentMbMax: ({ residentBytesMax }: Drained) => residentBytesMax / 1e6,
  startupMs: ({ startupMs }: Drained) => startupMs,
};

function report(results: readonly EntrantResult[], options: BenchOptions): Measurement[] {
  const rates = results.map((result) => ({ result, rate: rateOf('peers', result, options, details) }));
  const ours = rates.filter(({ result }) => result.contender === postcommit);
  const comparisons: Measurement[] = [];
  for (const { result, rate } of ours) {
    const theirs = rates.filter((other) => other.result.contender !== postcommit);
    const alike = theirs.filter((other) => other.result.processes === result.processes);
    const best = alike
      .filter((other) => bestModes.includes(other.result.contender))
      .sort((a, b) => b.rate.value - a.rate.value)[0];
    for (const other of alike) {
      const next = other.result.contender === graphileWorkerLocalQueue ? { next: 1.5 } : {};
      const goal = other === best ? { atLeast: 1.2, ...next } : goals.get(other.result.contender);
      // The budgets are for one process; what two do is told beside it.
      comparisons.push(compare(rate, other.rate, result.processes === 1 ? goal : undefined));
    }
    if (result.processes > 1) continue;
    for (const other of alike) {
      const [own, their] = [walOf(result, rate), walOf(other.result, other.rate)];
      if (own && their) comparisons.push(compare(own, their, { atMost: 1 }));
    }
  }
  return [...rates.map(({ rate }) => rate), ...comparisons];
}

const walOf = (result: EntrantResult, rate: Measurement): Measurement | undefined =>
  costOf(result, rate, `WAL of ${labelOf(result)}`, 'bytes/event', figures.walBytesPerEvent);
