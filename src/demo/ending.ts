import { OutputWatch } from '../process/output-watch.ts';
import { exitCodeOfSignal, StopSignals } from '../process/stop-signals.ts';

/** Ctrl-C and its like: not a failure, but nothing to prove either. */
export class Interrupted extends Error {
  readonly exitCode: number;
  /** Whether there is still somebody to tell it to. */
  readonly heard: boolean;

  constructor(exitCode: number, heard: boolean) {
    super('Interrupted');
    this.exitCode = exitCode;
    this.heard = heard;
  }
}

/**
 * Aborts with `Interrupted` on SIGINT, SIGTERM, SIGHUP, or when nobody reads the output any more (`npm run demo | head`), so
 * that what the demo made is removed. A second signal ends the process at once; then only an embedded server is still
 * cleared away, by its guardian. Answers how to stop watching.
 */
export function endEarly(ending: AbortController): () => void {
  const signals = new StopSignals();
  // After SIGHUP the terminal is gone.
  void signals.first.then((signal) => ending.abort(new Interrupted(exitCodeOfSignal(signal), signal !== 'SIGHUP')));
  const outputs = new OutputWatch(process);
  void outputs.failed.then(() => ending.abort(new Interrupted(1, false)));
  return () => {
    signals.close();
    outputs.close();
  };
}
