import type { Executor } from '../../database/executor.ts';
import { PostcommitError } from '../../errors.ts';
import { endCancelled, readCancelled } from '../../outbox/delivering/end-cancelled.ts';
import { errorText } from '../../telemetry/error-text.ts';
import type { Logger } from '../../telemetry/logging.ts';
import { SparseLog } from '../../telemetry/logging.ts';
import type { ClaimedEvent } from '../event/claimed-event.ts';
import type { Service } from '../service/service.ts';

export interface CancelWatchOptions {
  schema: string;
  db: Executor;
  logger: Logger;
  /** The fencing token; empty without a lease. */
  token: () => string;
  /** Whether a notification about a cancelled event would arrive. */
  isListening: () => boolean;
  /** The events that this relay has claimed and not settled. */
  claimed: () => readonly ClaimedEvent[];
  /** How many claims were begun, and how many of these have ended, with their events among `claimed`. */
  claims: () => { begun: number; ended: number };
  /** Releases an event that has not started, or aborts its handlers. Each has a moment to end. */
  abort: (event: ClaimedEvent, reason: Error) => void;
  /** Events behind cancelled ones can be claimed now. */
  onEnded: () => void;
}

/** How soon a relay that receives no notifications stops the delivery of a cancelled event. */
const checkEveryMs = 1_000;

/**
 * Stops the delivery of events that an operator has cancelled. Each is a dead letter already, and no result of its delivery
 * is accepted; but later events of its key wait until this relay has reported that the delivery ended. An event that has not
 * started does not start.
 *
 * A cancelled event that this relay owns and does not know may be in the answer of a claim. So it is reported only when the claims
 * that were in flight have ended, and does not start if one of them brings it.
 *
 * It looks after a notification and with each heartbeat, and every second while there are events and no notification would
 * arrive. It also ends the cancellations of relays that have ended.
 */
export class CancelWatch implements Service {
  readonly #options: CancelWatchOptions;
  readonly #log = new SparseLog();
  /** Cancelled events that are not settled. By object: the same event may be retried and claimed again. */
  readonly #cancelled = new Set<ClaimedEvent>();
  /** Cancelled events that this relay does not know, by seq, with how many claims were begun when it read of them. */
  readonly #unknown = new Map<string, number>();
  #timer: NodeJS.Timeout | undefined;
  #checking: Promise<void> | undefined;
  #again = false;
  #stopped = false;

  constructor(options: CancelWatchOptions) {
    this.#options = options;
  }

  /** The first check: not only with a heartbeat, because a relay that runs once may end before that. */
  async start(): Promise<void> {
    if (this.#stopped || this.#timer !== undefined) return;
    this.#timer = setInterval(() => {
      const { isListening, claimed } = this.#options;
      if (!isListening() && claimed().length > 0) this.check();
    }, checkEveryMs).unref();
    this.check();
    await this.#checking;
  }

  /** Reports the deliveries that have ended by now. */
  async stop(): Promise<void> {
    if (this.#timer !== undefined && !this.#stopped) this.check();
    this.#stopped = true;
    clearInterval(this.#timer);
    while (this.#checking) await this.#checking;
  }

  /** Looks for cancelled events, in the background. */
  check(): void {
    if (this.#stopped) return;
    if (this.#checking !== undefined) {
      this.#again = true;
      return;
    }
    this.#checking = this.#check()
      .catch((error) => {
        this.#log.say('cancel', (suppressed) =>
          this.#options.logger.warn(
            { suppressed, error: errorText(error) },
            'cannot look for cancelled events, retrying',
          ),
        );
      })
      .finally(() => {
        this.#checking = undefined;
      });
  }

  /** Whether the event is known to be cancelled: it must not start. */
  isCancelled(event: ClaimedEvent): boolean {
    if (this.#unknown.size > 0 && this.#unknown.delete(event.seq)) this.#cancelled.add(event);
    return this.#cancelled.size > 0 && this.#cancelled.has(event);
  }

  /** A claim has ended. */
  claimEnded(): void {
    if (this.#unknown.size > 0) this.check();
  }

  /** The event is settled. Returns whether it was cancelled. */
  settled(event: ClaimedEvent): boolean {
    if (this.#cancelled.size === 0 || !this.#cancelled.delete(event)) return false;
    this.check();
    return true;
  }

  /** The lease is lost: other relays end what was cancelled under it. */
  forget(): void {
    this.#cancelled.clear();
    this.#unknown.clear();
  }

  async #check(): Promise<void> {
    const { schema, db, token, claimed, abort, onEnded } = this.#options;
    do {
      this.#again = false;
      const under = token();
      if (under === '') return;
      const found = await readCancelled(db, schema, under);
      if (found.length === 0 || under !== token()) {
        this.#unknown.clear();
        continue;
      }
      const reasons = new Map(found.filter(({ isOwn }) => isOwn).map(({ seq, reason }) => [seq, reason]));
      const stillClaimed = new Set<string>();
      for (const event of claimed()) {
        const reason = reasons.get(event.seq);
        if (reason === undefined) continue;
        stillClaimed.add(event.seq);
        if (this.#cancelled.has(event)) continue;
        this.#cancelled.add(event);
        abort(event, new PostcommitError('POSTCOMMIT_E_EVENT_CANCELLED', reason));
      }
      const ended = this.#endedOf([...reasons.keys()].filter((seq) => !stillClaimed.has(seq)));
      if (ended.length === 0 && reasons.size === found.length) continue;
      if ((await endCancelled(db, schema, under, ended)) > 0) onEnded();
    } while (this.#again);
  }

  /** Of cancelled events that this relay does not know, those that no claim in flight can bring. */
  #endedOf(unknown: readonly string[]): string[] {
    const { begun, ended } = this.#options.claims();
    const since = new Map(unknown.map((seq) => [seq, this.#unknown.get(seq) ?? begun]));
    this.#unknown.clear();
    for (const [seq, claims] of since) if (claims > ended) this.#unknown.set(seq, claims);
    return unknown.filter((seq) => !this.#unknown.has(seq));
  }
}
