import type { Settings } from '../contenders/contender.ts';
import type { Measurement } from '../report.ts';

/** What the command line gives every suite. */
export interface BenchOptions {
  events: number;
  rounds: number;
  payloadBytes: number;
  aggregates: number;
  /** Names of what to measure; empty means all. Every name is one of a chosen suite's. */
  only: string[];
  /** Overridden settings by name, from `--set name.key=number`. */
  overrides: Record<string, Settings>;
  /** Of the order in which the contenders of a round take turns. */
  seed: number;
  databaseUrl: string | undefined;
  /** Aborted by Ctrl-C: clean up and leave. */
  interrupted: AbortSignal;
}

export interface Suite {
  name: string;
  /** One line for the usage text. */
  summary: string;
  /** What `--only` can choose of it. `--set` takes these names too. */
  names: readonly string[];
  /** What `--set` can change under the suite's own name, with the defaults. */
  settings?: Readonly<Settings>;
  run(options: BenchOptions): Promise<Measurement[]>;
}

/** The command line asked for something that does not exist; exit code 2. */
export class UsageError extends Error {}

/** Those of a suite's own that `--only` leaves. */
export function chosen<T extends { name: string }>(all: readonly T[], { only }: BenchOptions): T[] {
  return all.filter(({ name }) => only.length === 0 || only.includes(name));
}
