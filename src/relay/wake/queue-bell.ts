import { relayPacing } from '../../outbox/emitting/notify-pacing.ts';
import { firstPauseMs, pauseWithoutListenMsMax } from './tuning.ts';

export interface QueueBellOptions {
  /** The longest time between two claims. */
  pollIntervalMs: number;
  /** Whether NOTIFY is known to arrive. */
  listening: () => boolean;
}

/** Tells the lane of one queue when to claim: immediately after a notification, otherwise after a pause. */
export class QueueBell {
  readonly #options: QueueBellOptions;
  #wake: (() => void) | undefined;
  #notified = false;
  #stopped = false;
  #idleRounds = 0;
  #streamUntil = Number.NEGATIVE_INFINITY;
  /** Ends a wait without a notification; kept from one wait to the next. */
  #pause: { ms: number; timer: NodeJS.Timeout } | undefined;
  #alarm: NodeJS.Timeout | undefined;
  #alarmAt: number | undefined;

  constructor(options: QueueBellOptions) {
    this.#options = options;
  }

  stop(): void {
    this.#stopped = true;
    clearTimeout(this.#pause?.timer);
    this.#pause = undefined; // A cleared timer cannot be started again.
    clearTimeout(this.#alarm);
    this.ring();
  }

  ring(): void {
    this.#notified = true;
    this.#wake?.();
  }

  /**
   * Notifies the lane after this time. Only the earliest counts: the claim that it causes reports when the next event is due.
   */
  ringIn(ms: number): void {
    if (ms >= this.#options.pollIntervalMs || this.#stopped) return;
    const at = performance.now() + ms;
    if (this.#alarmAt !== undefined && this.#alarmAt <= at) return;
    clearTimeout(this.#alarm);
    this.#alarmAt = at;
    this.#alarm = setTimeout(() => {
      this.#alarmAt = undefined;
      this.ring();
    }, ms).unref();
  }

  /** There was work, this many events: the next pause is short again. */
  busy(claimed: number): void {
    this.#idleRounds = 0;
    if (claimed >= relayPacing.streamMin) this.#streamUntil = performance.now() + relayPacing.streamEndsAfterMs;
  }

  /** Resolves after a notification, or a pause of at most `dueInMs`. A notification since the last wait counts. */
  async wait(dueInMs = Number.POSITIVE_INFINITY): Promise<void> {
    if (!this.#notified && !this.#stopped) {
      const pauseMs = Math.max(1, Math.min(dueInMs, this.#pauseMs()));
      this.#idleRounds++;
      this.#wakeIn(pauseMs);
      await new Promise<void>((resolve) => {
        this.#wake = resolve;
      });
      this.#wake = undefined;
    }
    this.#notified = false;
  }

  #wakeIn(ms: number): void {
    if (this.#pause?.ms === ms) {
      this.#pause.timer.refresh();
      return;
    }
    clearTimeout(this.#pause?.timer);
    this.#pause = { ms, timer: setTimeout(() => this.#wake?.(), ms) };
  }

  #pauseMs(): number {
    const { pollIntervalMs, listening } = this.#options;
    if (performance.now() < this.#streamUntil) return Math.min(relayPacing.streamPauseMs, pollIntervalMs);
    if (listening()) return pollIntervalMs;
    const max = Math.min(pollIntervalMs, pauseWithoutListenMsMax);
    return Math.min(max, firstPauseMs * 2 ** Math.min(this.#idleRounds, 10));
  }
}
