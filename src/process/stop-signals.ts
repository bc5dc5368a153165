/**
 * A terminal sends Ctrl-C to every process of the group, and npm and npx forward it as well: one key press arrives two or
 * three times within milliseconds.
 */
const samePressMs = 250;

const stopSignals = { SIGTERM: 15, SIGINT: 2, SIGHUP: 1 } as const;

export type StopSignal = keyof typeof stopSignals;

/** The exit code that shells report for a process that this signal ended. */
export function exitCodeOfSignal(signal: StopSignal): number {
  return 128 + stopSignals[signal];
}

/**
 * Watches for the signals that end a program: SIGTERM, SIGINT (Ctrl-C) and SIGHUP (the terminal was closed). The first is
 * reported, a second SIGTERM or SIGINT ends the process immediately. A second SIGHUP does not: no user sent it.
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

  /** Restores the default handling of signals. */
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
