import type { Executor } from '../../database/executor.ts';
import { unpark } from '../../outbox/delivering/unpark.ts';
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

  /** The first sweep: not only with a beat, because a relay that runs once may end before that. */
  async start(): Promise<void> {
    if (this.#stopped) return;
    await unpark(this.#options.db, this.#options.schema);
    this.#schedule();
  }

  async stop(): Promise<void> {
    this.#stopped = true;
  }

  /** Sweeps if it is time, in the background: the other periodic work of the relay (`Lease.onBeat`) must not wait. */
  beat(): void {
    if (this.#stopped || performance.now() < this.#nextAt) return;
    this.#nextAt = Number.POSITIVE_INFINITY; // One at a time.
    const { db, schema, logger, onUnparked } = this.#options;
    unpark(db, schema)
      .then((count) => count > 0 && onUnparked())
      .catch((error) => {
        if (this.#stopped) return;
        this.#log.say('sweep', (suppressed) =>
          logger.warn({ err: String(error), suppressed }, 'cannot look for parked events, retrying'),
        );
      })
      .finally(() => this.#schedule());
  }

  #schedule(): void {
    this.#nextAt = performance.now() + sweepEveryMs(this.#options.leaseMs);
  }
}
