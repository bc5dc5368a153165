import { fork, type Serializable } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import { isNodeNewEnough } from './peers.ts';

/** What a child sends before its report, e.g. that it is ready; whoever started it may answer. */
export interface Note {
  note: string;
  [fact: string]: unknown;
}

export interface ChildOptions {
  /** For messages: what failed. */
  what: string;
  /** Nothing measured here comes near this; what hangs should not hang the benchmark. */
  timeoutMs: number;
  interrupted: AbortSignal;
  onNote?: (note: Note, answer: (message: Serializable) => void) => void;
}

/** Runs a file with a task as its argument in a process of its own, and returns what it reports. */
export function forkChild(execPath: string, file: URL, task: object, options: ChildOptions): Promise<unknown> {
  const { what, timeoutMs, interrupted, onNote } = options;
  return new Promise((resolve, reject) => {
    const child = fork(fileURLToPath(file), [JSON.stringify(task)], {
      execPath,
      execArgv: execArgvOf(execPath, file),
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
      if (isNote(message)) onNote?.(message, (answer) => void (child.connected && child.send(answer)));
      else report = message;
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

/** Node strips types by itself from 22.18 on; what is measured is `dist`, so a loader only costs time before it. */
function execArgvOf(execPath: string, file: URL): string[] {
  const needsLoader = file.pathname.endsWith('.ts') && execPath === process.execPath && !isNodeNewEnough();
  return needsLoader ? ['--import', 'tsx'] : ['--disable-warning=ExperimentalWarning'];
}

function isNote(message: unknown): message is Note {
  return typeof (message as Note | null)?.note === 'string';
}
