import type { Relay } from '../../relay/relay.ts';
import type { FirstHooks, LastHooks } from './hook-order.ts';

/**
 * Starts the relay when the application has started, and stops it before anything else of the application stops: no new claims, and
 * handlers in flight may finish within `stopTimeoutMs`. In a test, override it with `{}` to run the relay by hand.
 */
export class RelayRunner {
  readonly #relay: Partial<Relay>;
  readonly #isEnabled: boolean;

  constructor(relay: Partial<Relay>, isEnabled: boolean) {
    this.#relay = relay;
    this.#isEnabled = isEnabled;
  }

  /** Whether this process runs a relay. */
  get isEnabled(): boolean {
    return this.#isEnabled;
  }

  async start(): Promise<void> {
    if (this.#isEnabled) await this.#relay.start?.(); // A test may have overridden the relay.
  }

  async stop(): Promise<void> {
    await this.#relay.stop?.();
  }
}

/** Connects the runner to the lifecycle of the application, unless a test has overridden it. */
export function attachRunner(runner: Partial<RelayRunner>, first: FirstHooks, last: LastHooks): true {
  const stop = async () => runner.stop?.();
  first.destroy.push(stop);
  last.destroy.push(stop);
  last.bootstrap.push(async () => runner.start?.());
  return true;
}
