/**
 * A terminal sends Ctrl-C to every process of the group, and npm, npx and the like pass it on besides: the same press
 * arrives two or three times within milliseconds.
 */
const samePressMs = 250;

const stopSignals = { SIGTERM: 15, SIGINT: 2, SIGHUP: 1 } as const;

export type StopSignal = keyof typeof stopSignals;

/** The exit code of a process that this signal ended, as shells give it. */
export function exitCodeOfSignal(signal: StopSignal): number {
  return 128 + stopSignals[signal];
}

/**
 * Watches for the signals that end a program: SIGTERM, SIGINT (Ctrl-C) and SIGHUP (the terminal was closed). The first is
 * reported, a second SIGTERM or SIGINT ends the process at once. A second SIGHUP does not: it is not a person's wish.
 */
export class StopSignals {
  readonly #listeners = new Map<StopSignal, () => void>();
  #report: (signal: StopSignal) => void = () => {};
  #firstAt: number | undefined;
  /** Resolves with the first signal. */
  readonly first: Promise<StopSignal>;

  constructor() {
    this.first = new Promise((resolve) => {
      this.#report = resolve;
    });
    for (const signal of Object.keys(stopSignals) as StopSignal[]) {
      const listener = () => this.#receive(signal);
      this.#listeners.set(signal, listener);
      process.on(signal, listener);
    }
  }

  /** Leaves signals to their default again. */
  close(): void {
    for (const [signal, listener] of this.#listeners) process.off(signal, listener);
  }

  #receive(signal: StopSignal): void {
    const now = performance.now();
    if (this.#firstAt === undefined) {
      this.#firstAt = now;
      this.#report(signal);
    } else if (signal !== 'SIGHUP' && now - this.#firstAt > samePressMs) {
      process.exit(exitCodeOfSignal(signal));
    }
  }
}
