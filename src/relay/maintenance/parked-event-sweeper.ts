import type { Executor } from '../../database/executor.ts';
import { unpark } from '../../outbox/delivering/unpark.ts';
import { errorText } from '../../telemetry/error-text.ts';
import type { Logger } from '../../telemetry/logging.ts';
import { SparseLog } from '../../telemetry/logging.ts';
import type { Service } from '../service/service.ts';

export interface ParkedEventSweeperOptions {
  schema: string;
  db: Executor;
  leaseMs: number;
  logger: Logger;
  onUnparked: () => void;
}

/** How long events may stay parked after their dead letter was resolved by an operator's process that was then killed. */
const sweepEveryMs = (leaseMs: number) => Math.min(60_000, 2 * leaseMs);

/**
 * Unparks events whose blocking dead letter is resolved: an operator's process may have died between resolving it and
 * unparking what waited behind it.
 */
export class ParkedEventSweeper implements Service {
  readonly #options: ParkedEventSweeperOptions;
  readonly #log = new SparseLog();
  #nextAt = Number.POSITIVE_INFINITY;
  #stopped = false;

  constructor(options: ParkedEventSweeperOptions) {
    this.#options = options;
  }

  /** The first sweep begins. It is not awaited: a relay delivers meanwhile, and also when the sweep fails. */
  async start(): Promise<void> {
    if (!this.#stopped) this.#sweepInBackground();
  }

  /** One sweep, for a relay that is only ever run once: it may end before a beat. */
  async once(): Promise<void> {
    await unpark(this.#options.db, this.#options.schema);
  }

  async stop(): Promise<void> {
    this.#stopped = true;
  }

  /** Sweeps if it is time, in the background: the other periodic work of the relay (`Lease.onBeat`) must not wait. */
  beat(): void {
    if (!this.#stopped && performance.now() >= this.#nextAt) this.#sweepInBackground();
  }

  #sweepInBackground(): void {
    this.#nextAt = Number.POSITIVE_INFINITY; // One at a time.
    const { db, schema, leaseMs, logger, onUnparked } = this.#options;
    unpark(db, schema)
      .then((count) => count > 0 && onUnparked())
      .catch((error) => {
        if (this.#stopped) return;
        this.#log.say('sweep', (suppressed) =>
          logger.warn({ error: errorText(error), suppressed }, 'cannot look for parked events, retrying'),
        );
      })
      .finally(() => {
        this.#nextAt = performance.now() + sweepEveryMs(leaseMs);
      });
  }
}
