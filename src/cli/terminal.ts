import type { Readable, Writable } from 'node:stream';

/** The environment of one run of the command line. A parameter, so that nothing is read at import and tests can replace it. */
export interface Terminal {
  stdin: Readable & { isTTY?: boolean };
  stdout: Writable & { isTTY?: boolean; columns?: number; rows?: number };
  stderr: Writable & { isTTY?: boolean; columns?: number };
  env: Readonly<Record<string, string | undefined>>;
  cwd: string;
}

export function processTerminal(): Terminal {
  const { stdin, stdout, stderr, env } = process;
  return { stdin, stdout, stderr, env, cwd: process.cwd() };
}

/** Colours on a terminal only, and not with NO_COLOR (https://no-color.org). */
export function wantsColour(stream: { isTTY?: boolean }, env: Terminal['env']): boolean {
  return stream.isTTY === true && !env.NO_COLOR && env.TERM !== 'dumb';
}
