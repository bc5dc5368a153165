/**
 * A terminal sends Ctrl-C to every process of the group, and npm, npx and the like pass it on besides: the same press
 * arrives two or three times within milliseconds.
 */
const samePressMs = 250;

/** Watches for the signals that end a program: the first is told, a second ends the process at once. */
export class StopSignals {
  readonly #listeners = new Map<NodeJS.Signals, () => void>();
  #told: ((signal: NodeJS.Signals) => void) | undefined;
  #firstAt: number | undefined;
  /** Resolves with the first signal. */
  readonly first: Promise<NodeJS.Signals>;

  constructor() {
    this.first = new Promise((resolve) => {
      this.#told = resolve;
    });
    for (const [signal, number] of [
      ['SIGTERM', 15],
      ['SIGINT', 2],
    ] as const) {
      const listener = () => this.#receive(signal, number);
      this.#listeners.set(signal, listener);
      process.on(signal, listener);
    }
  }

  get received(): boolean {
    return this.#firstAt !== undefined;
  }

  /** Leaves signals to their default again. */
  close(): void {
    for (const [signal, listener] of this.#listeners) process.off(signal, listener);
  }

  #receive(signal: NodeJS.Signals, number: number): void {
    const now = performance.now();
    if (this.#firstAt === undefined) {
      this.#firstAt = now;
      this.#told?.(signal);
    } else if (now - this.#firstAt > samePressMs) {
      process.exit(128 + number);
    }
  }
}
