import type { Executor } from '../../database/executor.ts';
import { unpark } from '../../outbox/delivering/unpark.ts';
import type { Logger } from '../../telemetry/logging.ts';
import { SparseLog } from '../../telemetry/logging.ts';

export interface ForgottenSweepOptions {
  schema: string;
  db: Executor;
  leaseMs: number;
  logger: Logger;
  onWoken: () => void;
}

/** How long events may stay parked that an operator's process freed but, killed, did not unpark. */
const sweepEveryMs = (leaseMs: number) => Math.min(60_000, 2 * leaseMs);

/** An operator's process may have died between resolving a blocking dead letter and unparking what waited behind it. */
export class ForgottenSweep {
  readonly #options: ForgottenSweepOptions;
  readonly #log = new SparseLog();
  #nextAt = Number.POSITIVE_INFINITY;
  #stopped = false;

  constructor(options: ForgottenSweepOptions) {
    this.#options = options;
  }

  /** The first sweep: at once, and not with a heartbeat only, as a relay that just runs once may end before that. */
  async begin(): Promise<void> {
    await unpark(this.#options.db, this.#options.schema);
    this.#schedule();
  }

  stop(): void {
    this.#stopped = true;
  }

  /** Sweeps if it is time. Nobody waits for it: a heartbeat, which calls this, must not. */
  beat(): void {
    if (this.#stopped || performance.now() < this.#nextAt) return;
    this.#nextAt = Number.POSITIVE_INFINITY; // One at a time.
    const { db, schema, logger, onWoken } = this.#options;
    unpark(db, schema)
      .then((woken) => woken > 0 && onWoken())
      .catch((error) => {
        if (this.#stopped) return;
        this.#log.say('sweep', (suppressed) =>
          logger.warn({ err: String(error), suppressed }, 'could not look for forgotten events, trying on'),
        );
      })
      .finally(() => this.#schedule());
  }

  #schedule(): void {
    this.#nextAt = performance.now() + sweepEveryMs(this.#options.leaseMs);
  }
}
