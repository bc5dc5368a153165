import type { Contender } from '../contenders/contender.ts';
import { graphileWorkerDefault, graphileWorkerLocalQueue } from '../contenders/graphile-worker.ts';
import { pgBossBatch, pgBossDefault } from '../contenders/pg-boss.ts';
import {
  pgTransactionalOutboxPolling,
  pgTransactionalOutboxReplication,
} from '../contenders/pg-transactional-outbox.ts';
import { postcommit } from '../contenders/postcommit.ts';
import { textbook } from '../contenders/textbook.ts';
import type { Drained } from '../drain-once.ts';
import { drainInTurns, type Entrant, type EntrantResult, labelOf, rateOf } from '../drain-rounds.ts';
import { median } from '../ratio.ts';
import { makeReady } from '../ready.ts';
import { compare, type Goal, type Measurement } from '../report.ts';
import { type Server, startServer } from '../server.ts';
import { type BenchOptions, chosen, type Suite } from './suite.ts';

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

/**
 * The same drain as in `drain`, for everybody in every mode, with one and with two processes, and what it costs: WAL,
 * processor time and dead rows for each event. Who needs logical replication gets a server of its own, because
 * `wal_level = logical` makes everybody's WAL longer.
 */
export const peers: Suite = {
  name: 'peers',
  summary: 'the same drain for every peer and mode, one and two processes, with WAL, CPU and dead rows per event',
  names: contenders.map(({ name }) => name),

  async run(options) {
    const node = makeReady();
    const running = new Map<string, Server>();
    try {
      const entrants: Entrant[] = [];
      for (const contender of chosen(contenders, options)) {
        const settings = contender.serverSettings ?? {};
        const key = JSON.stringify(settings);
        const server = running.get(key) ?? (await startServer(options.databaseUrl, settings));
        running.set(key, server);
        for (let processes = 1; processes <= Math.min(2, contender.limits?.processes ?? 2); processes++) {
          entrants.push({ contender, processes, server });
        }
      }
      return report(await drainInTurns(entrants, node, options), options);
    } finally {
      for (const server of running.values()) await server.stop();
    }
  },
};

const perEvent =
  (pick: (drained: Drained) => number | undefined) =>
  (drained: Drained): number | undefined => {
    const value = pick(drained);
    return value === undefined ? undefined : value / drained.events;
  };

const details = {
  walBytesPerEvent: perEvent(({ walBytes }) => walBytes),
  cpuMicrosPerEvent: perEvent(({ clientCpuMs, serverCpuMs }) =>
    serverCpuMs === undefined ? undefined : (clientCpuMs + serverCpuMs) * 1_000,
  ),
  clientCpuMicrosPerEvent: perEvent(({ clientCpuMs }) => clientCpuMs * 1_000),
  deadTuplesPerEvent: perEvent(({ deadTuples }) => deadTuples),
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
      const goal = other === best ? { atLeast: 1.2 } : goals.get(other.result.contender);
      // The budgets are for one process; what two do is told beside it.
      comparisons.push(compare(rate, other.rate, result.processes === 1 ? goal : undefined));
    }
    if (result.processes > 1) continue;
    for (const other of alike) {
      comparisons.push(compare(walOf(result, rate), walOf(other.result, other.rate), { atMost: 1 }));
    }
  }
  return [...rates.map(({ rate }) => rate), ...comparisons];
}

function walOf(result: EntrantResult, { versions, settings }: Measurement): Measurement {
  const bytes = result.rounds.map(({ walBytes, events }) => walBytes / events);
  return {
    suite: 'peers',
    name: `WAL of ${labelOf(result)}`,
    value: median(bytes),
    unit: 'bytes/event',
    rounds: bytes,
    versions,
    settings,
  };
}
