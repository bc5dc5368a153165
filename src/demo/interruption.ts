import { OutputWatch } from '../process/output-watch.ts';
import { exitCodeOfSignal, StopSignals } from '../process/stop-signals.ts';

/** The demo was interrupted, by Ctrl-C for example. No check failed, but none ran. */
export class Interrupted extends Error {
  readonly exitCode: number;
  /** Whether the output can still be written. */
  readonly canPrint: boolean;

  constructor(exitCode: number, canPrint: boolean) {
    super('Interrupted');
    this.exitCode = exitCode;
    this.canPrint = canPrint;
  }
}

/**
 * Aborts with `Interrupted` on SIGINT, SIGTERM, SIGHUP, or when the output cannot be written any more (`npm run demo | head`),
 * so that the demo removes what it created. A second signal ends the process immediately; then only an embedded server is
 * removed, by its guardian. Returns a function that stops watching.
 */
export function abortOnInterruption(ending: AbortController): () => void {
  const signals = new StopSignals();
  // After SIGHUP the terminal is closed.
  void signals.first.then((signal) => ending.abort(new Interrupted(exitCodeOfSignal(signal), signal !== 'SIGHUP')));
  const outputs = new OutputWatch(process);
  void outputs.failed.then(() => ending.abort(new Interrupted(1, false)));
  return () => {
    signals.close();
    outputs.close();
  };
}
