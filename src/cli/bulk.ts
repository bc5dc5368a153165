import type { OutboxAdmin } from '../admin/admin.ts';
import type { BulkOptions, BulkResult, DuplicateId } from '../admin/chunks.ts';
import { PostcommitError } from '../errors.ts';
import { duration, quantity } from '../format.ts';
import { StopSignals } from '../process/stop-signals.ts';
import type { Context } from './context.ts';
import { withAdmin } from './context.ts';
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

/** What a bulk operation returns, whichever it is. */
interface AnyBulkResult extends BulkResult {
  /** Where an interrupted operation continues, if not from its beginning. */
  next?: string;
  /** Events not changed because a live relay has claimed them. */
  inFlight?: number;
}

/**
 * Runs a bulk operation and prints how many events it changed. Exit code 1 if ids were given and none of them could be
 * changed, or a relay had claimed one of them. Conditions that match nothing are no error.
 */
export async function runBulk(
  context: Context,
  { noun, done, named }: { noun: string; done: string; named: boolean },
  operation: (admin: OutboxAdmin, options: BulkOptions) => Promise<AnyBulkResult>,
): Promise<void> {
  const { output } = context;
  const told = (count: number) => `${quantity(count, noun)} ${done}`;
  const result = await watched(context, told(0), ({ signal, tell }) =>
    withAdmin(context, (admin) => operation(admin, { signal, onProgress: (count) => tell(told(count)) })),
  );
  const { count, interrupted, next, duplicates, inFlight = 0 } = result;
  if (named && count === 0 && !interrupted) {
    if (inFlight > 0) throw new PostcommitError('POSTCOMMIT_E_EVENT_IN_FLIGHT');
    const hint = '`postcommit events <id>` shows its status.';
    throw new PostcommitError('POSTCOMMIT_E_NOT_FOUND', `None of the ids is a ${noun}. ${hint}`);
  }
  output.show(result, () => {
    if (!interrupted) output.line(told(count));
    if (inFlight > 0)
      output.line(output.paint.yellow(`${quantity(inFlight, 'event')} not changed: claimed by a relay`));
    tellDuplicates(context, duplicates);
  });
  if (interrupted) {
    endInterrupted(context, told(count), `run the same command again${next ? ` with --after ${next}` : ''}`);
  }
  if (named && inFlight > 0) throw new ExitWith(exitCodes.failed);
}

/** Says which ids name several events. */
function tellDuplicates({ output }: Context, duplicates: readonly DuplicateId[] = []): void {
  for (const { id, seqs } of duplicates) {
    output.line(
      output.paint.yellow(
        `${quantity(seqs.length, 'event')} have the id ${id} and all were changed: seqs ${seqs.join(', ')}`,
      ),
    );
  }
}
