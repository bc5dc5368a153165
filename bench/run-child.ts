import { fork } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import type { Target } from './contenders/contender.ts';

export interface ChildTask {
  phase: 'fill' | 'drain';
  contender: string;
  target: Target;
}

/** What a drain measured. */
export interface Drained {
  /** Handler calls until everything was settled and the contender had stopped. */
  calls: number;
  /** The version of Node it ran under. */
  node: string;
  /** From the call that starts the contender, loading its modules included, to its first claim. */
  startupMs: number;
  /** From the first claim to the last event settled in the database. */
  drainMs: number;
}

/** Runs one phase in a process of its own and returns what it reports. */
export function runChild(execPath: string, task: ChildTask, interrupted: AbortSignal): Promise<unknown> {
  const what = `${task.contender} ${task.phase}`;
  return forkChild(execPath, new URL('child.ts', import.meta.url), task, {
    what,
    events: task.target.backlog.events,
    interrupted,
  });
}

/** Runs a file with a task as its argument, and returns the message it sends. */
export function forkChild(
  execPath: string,
  file: URL,
  task: object,
  { what, events, interrupted }: { what: string; events: number; interrupted: AbortSignal },
): Promise<unknown> {
  // Nothing measured here comes near this; a contender that hangs should not hang the benchmark.
  const timeoutMs = 120_000 + events * 5;
  return new Promise((resolve, reject) => {
    const child = fork(fileURLToPath(file), [JSON.stringify(task)], {
      execPath,
      // Not the parent's: that runs under a loader. Node 22 strips the types by itself.
      execArgv: ['--disable-warning=ExperimentalWarning'],
      // stdout belongs to the measurements.
      stdio: ['ignore', process.stderr, process.stderr, 'ipc'],
      signal: interrupted,
      killSignal: 'SIGKILL',
    });
    let report: unknown;
    let timedOut = false;
    const timer = setTimeout(() => {
      timedOut = true;
      child.kill('SIGKILL');
    }, timeoutMs);
    child.on('message', (message) => {
      report = message;
    });
    child.on('error', reject);
    child.on('close', (code, signal) => {
      clearTimeout(timer);
      if (report !== undefined && code === 0) return resolve(report);
      const why = timedOut ? `did not finish within ${timeoutMs / 1_000} s` : `ended with ${signal ?? `code ${code}`}`;
      reject(new Error(`${what} ${why}.`));
    });
  });
}
