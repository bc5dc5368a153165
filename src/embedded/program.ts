import { type ChildProcess, spawn } from 'node:child_process';
import { PostcommitError } from '../errors.ts';
import type { RunAs } from './postgres-binaries.ts';

const logCharactersMax = 16_384;
/** How long to wait after a signal before sending the next, stronger one. */
const escalateAfterMs = 10_000;

/** A running initdb or postgres. */
export interface Program {
  readonly child: ChildProcess;
  /** Resolves when it has ended, with the reason if it failed. Never rejects. */
  readonly ended: Promise<string | undefined>;
  /** The end of its output. */
  log(): string;
}

export function runProgram(command: string, args: string[], workingDirectory: string, runAs?: RunAs): Program {
  const child = spawn(command, args, {
    ...runAs,
    cwd: workingDirectory,
    env: { ...process.env, LC_ALL: 'C' },
    stdio: ['ignore', 'pipe', 'pipe'],
    // In its own session: Ctrl-C must not stop the database while the application finishes its work.
    detached: process.platform !== 'win32',
    windowsHide: true,
  });
  let log = '';
  const keep = (chunk: Buffer) => {
    log = (log + chunk.toString('utf8')).slice(-logCharactersMax);
  };
  child.stdout.on('data', keep);
  child.stderr.on('data', keep);
  const ended = new Promise<string | undefined>((settle) => {
    child.once('error', (error) => settle(error.message));
    child.once('close', (code, signal) => settle(code === 0 ? undefined : `exited with ${code ?? signal}`));
  });
  return { child, ended, log: () => log };
}

/** Sends `signal`, then stronger ones if the program does not end: a fast shutdown waits for a hanging replication client. */
export async function endProgram({ child, ended }: Program, signal: 'SIGINT' | 'SIGQUIT'): Promise<void> {
  child.ref();
  const signals: NodeJS.Signals[] = signal === 'SIGINT' ? ['SIGINT', 'SIGQUIT', 'SIGKILL'] : ['SIGQUIT', 'SIGKILL'];
  let timer: NodeJS.Timeout | undefined;
  const escalate = () => {
    const next = signals.shift();
    if (next === undefined) return;
    child.kill(next);
    timer = setTimeout(escalate, escalateAfterMs);
  };
  escalate();
  await ended;
  clearTimeout(timer);
}

export function programFailed(what: string, program: Program): PostcommitError {
  const log = program.log().trimEnd();
  return new PostcommitError('POSTCOMMIT_E_EMBEDDED_POSTGRES', log ? `${what}. Its log ends:\n${log}` : `${what}.`);
}

/** Lets this process end while the child and its pipes are open. */
export function letProcessEnd(child: ChildProcess): void {
  child.unref();
  for (const stream of child.stdio) {
    // The pipes of a child are sockets at run time, but their type is a stream.
    if (stream !== null && stream !== undefined && 'unref' in stream) (stream as unknown as NodeJS.RefCounted).unref();
  }
}
