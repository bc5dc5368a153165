import type { OutboxAdmin } from '../admin/admin.ts';
import type { BulkOptions, BulkResult, DuplicateId } from '../admin/chunks.ts';
import { PostcommitError } from '../errors.ts';
import { quantity } from '../format.ts';
import type { StopSignal } from '../process/stop-signals.ts';
import { exitCodeOfSignal, StopSignals } from '../process/stop-signals.ts';
import type { Context } from './context.ts';
import { withAdmin } from './context.ts';
import { ExitWith, exitCodes } from './exit-codes.ts';
import { progressLine } from './progress-line.ts';

/** Refreshes the elapsed time while a chunk runs. */
const refreshMs = 500;

/** How a long operation learns that it must stop, and reports its progress. */
export interface Progress {
  signal: AbortSignal;
  /** Replaces the progress text. With `share`, from 0 to 1, there is a bar. */
  report: (text: string, share?: number) => void;
  /** Whether progress is shown: if not, nothing has to be counted for it. */
  isShown: boolean;
}

/** What a long operation returned, and the signal that stopped it. */
interface Finished<T> {
  result: T;
  stoppedBy: StopSignal | undefined;
}

/**
 * Runs a long operation. Shows its progress and the elapsed time on a terminal. The first Ctrl-C, SIGTERM or SIGHUP aborts its
 * signal, so that it stops between two chunks; a second Ctrl-C or SIGTERM ends the process.
 */
export async function runWithProgress<T>(
  { terminal: { stderr, env }, output }: Context,
  initialText: string,
  work: (progress: Progress) => Promise<T>,
): Promise<Finished<T>> {
  const isShown = stderr.isTTY === true && env.TERM !== 'dumb' && !output.json;
  const signals = new StopSignals();
  const stop = new AbortController();
  let stoppedBy: StopSignal | undefined;
  const startedAt = performance.now();
  let state: { text: string; share?: number | undefined } = { text: initialText };
  const show = () => {
    const elapsedMs = performance.now() - startedAt;
    const line = progressLine({ ...state, elapsedMs, stopping: stop.signal.aborted }, stderr.columns);
    stderr.write(`\r\x1b[2K${line}`);
  };
  void signals.first.then((signal) => {
    stoppedBy = signal;
    stop.abort();
    if (isShown) show();
  });
  const timer = isShown ? setInterval(show, refreshMs) : undefined;
  try {
    const result = await work({
      signal: stop.signal,
      isShown,
      report: (text, share) => {
        state = { text, share };
        if (isShown) show();
      },
    });
    return { result, stoppedBy };
  } finally {
    clearInterval(timer);
    if (isShown) stderr.write('\r\x1b[2K');
    signals.close();
  }
}

/** Prints that an operation was interrupted, what it has done and how to continue, and ends with the exit code of the signal. */
export function endInterrupted({ output }: Context, stoppedBy: StopSignal, done: string, next: string): never {
  output.line(output.paint.yellow(`interrupted: ${done}; to continue, ${next}`));
  throw new ExitWith(exitCodeOfSignal(stoppedBy));
}

/** What a bulk operation returns, whichever it is. */
interface AnyBulkResult extends BulkResult {
  /** Where an interrupted operation continues, if not from its beginning. */
  next?: string;
  /** Events not changed because a live relay has claimed them. */
  inFlight?: number;
  /** Cancelled events that a live relay had claimed. */
  running?: number;
  /** Events not cancelled because they were delivered before. */
  delivered?: number;
}

interface BulkWords {
  noun: string;
  done: string;
  /** Whether the user has named the events by id. */
  named: boolean;
  /** Counts how many events it will change, for a bar; `undefined` if that is too expensive to say. */
  total?: (admin: OutboxAdmin) => Promise<number | undefined>;
}

/**
 * Runs a bulk operation and prints how many events it changed. Exit code 1 if ids were given and none of them could be
 * changed, a relay had claimed one of them, or one of them to be cancelled was delivered. Conditions that match nothing are not an error.
 */
export async function runBulk(
  context: Context,
  { noun, done, named, total }: BulkWords,
  operation: (admin: OutboxAdmin, options: BulkOptions) => Promise<AnyBulkResult>,
): Promise<void> {
  const { output } = context;
  const summary = (count: number) => `${quantity(count, noun)} ${done}`;
  const { result, stoppedBy } = await runWithProgress(context, summary(0), ({ signal, report, isShown }) =>
    withAdmin(context, async (admin) => {
      const all = isShown ? await total?.(admin) : undefined;
      const onProgress = (count: number) => {
        if (all === undefined || all < count) report(summary(count));
        else report(`${count.toLocaleString('en-US')} of ${summary(all)}`, count / all);
      };
      return operation(admin, { signal, onProgress });
    }),
  );
  const { count, interrupted, next, duplicates, inFlight = 0, running = 0, delivered = 0 } = result;
  if (named && count === 0 && !interrupted) {
    if (inFlight > 0) throw new PostcommitError('POSTCOMMIT_E_EVENT_IN_FLIGHT');
    if (delivered > 0) throw new PostcommitError('POSTCOMMIT_E_ALREADY_DELIVERED');
    const hint = '`npx postcommit events <id>` shows its status.';
    throw new PostcommitError(
      'POSTCOMMIT_E_NOT_FOUND',
      `None of the ids is ${/^[aeiou]/.test(noun) ? 'an' : 'a'} ${noun}. ${hint}`,
    );
  }
  output.show(result, () => {
    if (!interrupted) output.line(summary(count));
    if (inFlight > 0)
      output.line(output.paint.yellow(`${quantity(inFlight, 'event')} not changed: claimed by a relay`));
    if (running > 0) output.line(`${quantity(running, 'event')} of them in flight: their handlers are being aborted`);
    if (named && delivered > 0)
      output.line(output.paint.yellow(`${quantity(delivered, 'event')} not cancelled: already delivered`));
    printDuplicates(context, duplicates);
  });
  if (interrupted && stoppedBy) {
    const how = `run the same command again${next ? ` with --after ${next}` : ''}`;
    endInterrupted(context, stoppedBy, summary(count), how);
  }
  if (named && inFlight + delivered > 0) throw new ExitWith(exitCodes.failed);
}

/** Prints which ids several events have. */
function printDuplicates({ output }: Context, duplicates: readonly DuplicateId[] = []): void {
  for (const { id, seqs } of duplicates) {
    output.line(
      output.paint.yellow(
        `${quantity(seqs.length, 'event')} have the id ${id} and all were changed: seqs ${seqs.join(', ')}`,
      ),
    );
  }
}
