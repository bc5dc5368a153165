import type { Executor } from '../../database/executor.ts';
import { releaseDuty, takeDuty } from '../../outbox/maintaining/take-duty.ts';
import { errorText } from '../../telemetry/error-text.ts';
import type { Logger } from '../../telemetry/logging.ts';
import { SparseLog } from '../../telemetry/logging.ts';
import { safeShare } from '../service/safe-share.ts';

export interface LeaderOptions {
  /** The duty's name: `maintenance`, or that of a set of schedules. */
  name: string;
  schema: string;
  /** The connection `control`: each beat is one short statement. */
  db: Executor;
  leaseMs: number;
  /** The relay's own token; empty while it has none. */
  token: () => string;
  logger: Logger;
  onTaken: (epoch: string) => void;
  /** Another relay owns the duty, or may own it. */
  onLost: (epoch: string) => void;
}

/** The fence of a leader's writes. */
export interface OwnedDuty {
  name: string;
  owner: string;
  epoch: string;
}

/**
 * Whether this relay is the one that has a duty, such as maintenance. The duty is a row with a lease by the database's clock and an epoch
 * that grows with each owner: no session lock, so poolers are fine. Every relay asks for it with each heartbeat, and the owner
 * thereby renews it. It is free when its lease has expired, and at once when its owner has stopped or was declared lost.
 *
 * As with the relay's own lease, the time counts from when the last successful renewal was *sent*: the leader stops before
 * another relay may start. One that stalled past that is fenced by the epoch (`recordRun`).
 */
export class Leader {
  readonly #options: LeaderOptions;
  readonly #log = new SparseLog();
  #duty: OwnedDuty | undefined;
  #renewedAt = 0;
  #stopped = false;

  constructor(options: LeaderOptions) {
    this.#options = options;
  }

  /** The duty, while this relay can rely on it. */
  get duty(): OwnedDuty | undefined {
    const { leaseMs, token } = this.#options;
    const relied = performance.now() - this.#renewedAt < leaseMs * safeShare && this.#duty?.owner === token();
    return relied ? this.#duty : undefined;
  }

  /** Takes the duty if it is free, or renews it. Never fails: the lease, which calls this with each beat, would beat again sooner. */
  async beat(): Promise<void> {
    const { name, db, schema, leaseMs, token, logger } = this.#options;
    const owner = token();
    if (owner === '' || this.#stopped) return;
    const sentAt = performance.now();
    try {
      const epoch = await takeDuty(db, schema, { name, owner }, leaseMs);
      if (this.#stopped) return;
      if (epoch === undefined) this.#lose();
      else this.#have({ name, owner, epoch }, sentAt);
    } catch (error) {
      this.#log.say('beat', (suppressed) =>
        logger.warn({ duty: name, suppressed, error: errorText(error) }, 'cannot renew the duty, retrying'),
      );
    }
  }

  /** Releases the duty for good. */
  async stop(): Promise<void> {
    this.#stopped = true;
    const duty = this.#duty;
    this.#duty = undefined;
    if (duty) await releaseDuty(this.#options.db, this.#options.schema, duty);
  }

  #have(duty: OwnedDuty, sentAt: number): void {
    const before = this.#duty;
    this.#duty = duty;
    this.#renewedAt = sentAt;
    if (before?.epoch === duty.epoch) return;
    if (before) this.#options.onLost(before.epoch);
    this.#options.onTaken(duty.epoch);
  }

  #lose(): void {
    const before = this.#duty;
    this.#duty = undefined;
    if (before) this.#options.onLost(before.epoch);
  }
}
