import type { DuplicateId } from '../admin/chunks.ts';
import { duration, quantity } from '../format.ts';
import { StopSignals } from '../process/stop-signals.ts';
import type { Context } from './context.ts';
import { ExitWith, exitCodes } from './exit-codes.ts';

/** The time that it has run goes on also where a chunk takes long. */
const refreshMs = 500;

/** What an operation over many rows is given to be watched and interrupted. */
export interface Watch {
  signal: AbortSignal;
  /** Shown from now on. */
  tell: (text: string) => void;
}

/**
 * Runs an operation over many rows: shows on a terminal how far it is and for how long it has run, and turns the first Ctrl-C
 * or SIGTERM into its signal, so that it ends between two chunks. The second one ends the process.
 */
export async function watched<T>(
  { terminal: { stderr, env }, output }: Context,
  begins: string,
  work: (watch: Watch) => Promise<T>,
): Promise<T> {
  const isShown = stderr.isTTY === true && env.TERM !== 'dumb' && !output.json;
  const signals = new StopSignals();
  const stop = new AbortController();
  const startedAt = performance.now();
  let text = begins;
  const show = () => {
    const stopping = stop.signal.aborted ? '; stopping, Ctrl-C again ends it at once' : '';
    stderr.write(`\r\x1b[2K${text} (${duration(performance.now() - startedAt)}${stopping})`);
  };
  void signals.first.then(() => {
    stop.abort();
    if (isShown) show();
  });
  const timer = isShown ? setInterval(show, refreshMs) : undefined;
  try {
    return await work({
      signal: stop.signal,
      tell: (next) => {
        text = next;
        if (isShown) show();
      },
    });
  } finally {
    clearInterval(timer);
    if (isShown) stderr.write('\r\x1b[2K');
    signals.close();
  }
}

/** Says that an operation ended before all was done, how much was, and how to go on; and ends with the exit code for it. */
export function endInterrupted({ output }: Context, done: string, goOn: string): never {
  output.line(output.paint.yellow(`interrupted: ${done}; to go on, ${goOn}`));
  throw new ExitWith(exitCodes.interrupted);
}

/** Says which ids name several events. */
export function tellDuplicates({ output }: Context, duplicates: readonly DuplicateId[] = []): void {
  for (const { id, seqs } of duplicates) {
    output.line(
      output.paint.yellow(
        `${quantity(seqs.length, 'event')} have the id ${id}: all were taken; seqs ${seqs.join(', ')}`,
      ),
    );
  }
}
