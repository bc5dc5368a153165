import { StopSignals } from '../cli/signals.ts';

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
  void signals.first.then((signal) => ending.abort(new Interrupted(signal === 'SIGINT' ? 130 : 143, true)));
  // The terminal was closed.
  const onHangup = () => ending.abort(new Interrupted(129, false));
  process.once('SIGHUP', onHangup);
  const takeBack = [process.stdout, process.stderr].map((stream) => {
    const onBrokenPipe = () => ending.abort(new Interrupted(1, false));
    // Whoever else listens would end the process before anything is removed.
    const others = stream.listeners('error') as ((error: Error) => void)[];
    stream.removeAllListeners('error').on('error', onBrokenPipe);
    return () => {
      stream.off('error', onBrokenPipe);
      for (const other of others) stream.on('error', other);
    };
  });
  return () => {
    signals.close();
    process.off('SIGHUP', onHangup);
    for (const restore of takeBack) restore();
  };
}
