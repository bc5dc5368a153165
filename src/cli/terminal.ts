import type { Readable, Writable } from 'node:stream';

/** The world around one run of the command line. Handed in, so that nothing is read at import and tests can give another. */
export interface Terminal {
  stdin: Readable & { isTTY?: boolean };
  stdout: Writable & { isTTY?: boolean; columns?: number };
  stderr: Writable & { isTTY?: boolean };
  env: Readonly<Record<string, string | undefined>>;
  cwd: string;
}

export function processTerminal(): Terminal {
  const { stdin, stdout, stderr, env } = process;
  return { stdin, stdout, stderr, env, cwd: process.cwd() };
}

/** Colours only where a person looks, and never against their will (https://no-color.org). */
export function wantsColour(stream: { isTTY?: boolean }, env: Terminal['env']): boolean {
  return stream.isTTY === true && !env.NO_COLOR && env.TERM !== 'dumb';
}
