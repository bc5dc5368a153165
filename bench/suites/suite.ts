import type { Settings } from '../contenders/contender.ts';
import type { Measurement } from '../report.ts';

/** What the command line gives every suite. */
export interface BenchOptions {
  events: number;
  rounds: number;
  payloadBytes: number;
  aggregates: number;
  /** Names of the contenders to run; empty means all. */
  only: string[];
  /** Overridden settings by contender, from `--set contender.key=number`. */
  overrides: Record<string, Settings>;
  databaseUrl: string | undefined;
  /** Aborted by Ctrl-C: clean up and leave. */
  interrupted: AbortSignal;
}

export interface Suite {
  name: string;
  /** One line for the usage text. */
  summary: string;
  run(options: BenchOptions): Promise<Measurement[]>;
}

/** The command line asked for something that does not exist; exit code 2. */
export class UsageError extends Error {}
