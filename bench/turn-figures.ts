import { machine } from './machine.ts';
import { packageAt } from './peers.ts';
import { median } from './ratio.ts';
import { type Measurement, percentile } from './report.ts';
import type { Server } from './server.ts';
import type { BenchOptions } from './suites/suite.ts';
import type { RoundTimes } from './turns.ts';

/** Where transactions take turns: how many clients, and how far the server is. */
export interface TurnSetting {
  name: string;
  clients: number;
  /** Of the delaying proxy, each way; 0 means no proxy. */
  delayMs: number;
  turns: number;
  transactionsPerTurn: number;
}

/** What a process that took turns reports. */
export interface TurnReport {
  node: string;
  /** Of `select 1`, the median. */
  roundTripMs: number;
  rounds: Record<string, RoundTimes[]>;
}

/**
 * One client on loopback, and one and eight at 1 ms. With one, the round trips are what counts; eight keep two cores busy, so there
 * each microsecond of processor time counts too. What is missing to half a millisecond is what the proxy and the server take.
 */
export function turnSettings(options: {
  loopbackTurns: number;
  remoteTurns: number;
  remoteDelayMicros: number;
}): TurnSetting[] {
  const delayMs = options.remoteDelayMicros / 1_000;
  return [
    { name: 'one client on loopback', clients: 1, delayMs: 0, turns: options.loopbackTurns, transactionsPerTurn: 100 },
    // Few transactions, because each takes some seven milliseconds whatever the machine does.
    {
      name: 'one client at 1 ms round trip',
      clients: 1,
      delayMs,
      turns: Math.ceil(options.remoteTurns / 2),
      transactionsPerTurn: 20,
    },
    {
      name: 'eight clients at 1 ms round trip',
      clients: 8,
      delayMs,
      turns: options.remoteTurns,
      transactionsPerTurn: 100,
    },
  ];
}

/** A percentile of one entrant's times; `undefined` if it was not measured. */
export function turnFigure(
  { suite, entrant, share }: { suite: string; entrant: string; share: number },
  found: TurnReport,
  setting: TurnSetting,
  server: Server,
  options: BenchOptions,
): Measurement | undefined {
  const rounds = found.rounds[entrant];
  if (!rounds) return undefined;
  const values = rounds.map(({ latenciesMs }) => percentile(latenciesMs, share));
  const perSecond = rounds.map(({ latenciesMs, busyMs }) => (latenciesMs.length / busyMs) * 1_000);
  return {
    suite,
    name: `${entrant}, ${setting.name}, p${share * 100}`,
    value: median(values),
    unit: 'ms',
    rounds: values,
    details: {
      p99Ms: median(rounds.map(({ latenciesMs }) => percentile(latenciesMs, 0.99))),
      commitsPerSecond: median(perSecond),
      roundTripMs: found.roundTripMs,
    },
    versions: {
      node: found.node,
      postgres: server.version,
      postcommit: packageAt(new URL('../package.json', import.meta.url)).version,
    },
    settings: {
      payloadBytes: options.payloadBytes,
      rounds: options.rounds,
      transactionsPerRound: setting.turns * setting.transactionsPerTurn,
      clients: setting.clients,
      ...machine(),
    },
  };
}
