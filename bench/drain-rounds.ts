import type { Contender, Settings } from './contenders/contender.ts';
import { type Drain, type Drained, drainOnce } from './drain-once.ts';
import { machine } from './machine.ts';
import { packageAt } from './peers.ts';
import { median } from './ratio.ts';
import type { Measurement } from './report.ts';
import type { Server } from './server.ts';
import { seededRandom, shuffled } from './shuffled.ts';
import type { BenchOptions } from './suites/suite.ts';

/** A contender, and with how many processes. */
export interface Entrant {
  contender: Contender;
  processes: number;
  server: Server;
}

export interface EntrantResult extends Entrant {
  rounds: Drained[];
}

export const labelOf = ({ contender, processes }: Entrant): string =>
  processes === 1 ? contender.name : `${contender.name}, ${processes} processes`;

/** Each round drains every entrant's backlog once, in random order, so that rounds can be compared within themselves. */
export async function drainInTurns(
  entrants: readonly Entrant[],
  node: string,
  options: BenchOptions,
  watch: Pick<Drain, 'watchClaims' | 'inspect'> = {},
): Promise<EntrantResult[]> {
  const results = entrants.map((entrant): EntrantResult => ({ ...entrant, rounds: [] }));
  const random = seededRandom(options.seed);
  for (let round = 1; round <= options.rounds; round++) {
    for (const result of shuffled(results, random)) {
      const { contender, processes, server } = result;
      if (round > (contender.limits?.rounds ?? Number.POSITIVE_INFINITY)) continue;
      const drained = await drainOnce({
        server,
        node,
        contender,
        backlog: { ...options, events: eventsOf(contender, options) },
        settings: settingsOf(contender, options),
        processes,
        interrupted: options.interrupted,
        ...watch,
      });
      result.rounds.push(drained);
      const rate = Math.round(drained.eventsPerSecond).toLocaleString('en');
      console.error(`round ${round} of ${options.rounds}: ${labelOf(result)} ${rate} events/s`);
    }
  }
  return results;
}

const eventsOf = ({ limits }: Contender, { events }: BenchOptions): number =>
  Math.min(events, limits?.events ?? events);

function settingsOf(contender: Contender, { overrides }: BenchOptions): Settings {
  return { ...contender.settings, ...overrides[contender.name] };
}

/** The rate of an entrant, with `details` taken from its drains. */
export function rateOf(
  suite: string,
  result: EntrantResult,
  options: BenchOptions,
  details: Record<string, (drained: Drained) => number | undefined>,
): Measurement {
  const { contender, processes, rounds, server } = result;
  const rates = rounds.map(({ eventsPerSecond }) => eventsPerSecond);
  const { name, version } = packageAt(contender.packageJson);
  const figures = Object.entries(details).flatMap(([key, pick]) => {
    const values = rounds.flatMap((drained) => pick(drained) ?? []);
    return values.length > 0 ? [[key, median(values)] as const] : [];
  });
  return {
    suite,
    name: labelOf(result),
    value: median(rates),
    unit: 'events/s',
    rounds: rates,
    details: Object.fromEntries(figures),
    versions: { node: rounds[0]?.node ?? '', postgres: server.version, [name]: version },
    settings: {
      events: eventsOf(contender, options),
      payloadBytes: options.payloadBytes,
      aggregates: options.aggregates,
      rounds: rounds.length,
      processes,
      ...machine(),
      ...contender.serverSettings,
      ...settingsOf(contender, options),
    },
  };
}

/** What an event of an entrant costs, as a measurement to compare; undefined if some round could not tell. */
export function costOf(
  { rounds }: EntrantResult,
  { suite, versions, settings }: Measurement,
  name: string,
  unit: string,
  pick: (drained: Drained) => number | undefined,
): Measurement | undefined {
  const values = rounds.flatMap((drained) => pick(drained) ?? []);
  if (values.length < rounds.length) return undefined;
  return { suite, name, value: median(values), unit, rounds: values, versions, settings };
}
