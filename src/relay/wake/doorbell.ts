import { randomUUID } from 'node:crypto';
import type pg from 'pg';
import type { Executor } from '../../database/executor.ts';
import { doorbellChannel } from '../../database/identifier.ts';
import { listenInProcess, notifyWith } from '../../outbox/emitting/notify.ts';

export interface DoorbellOptions {
  schema: string;
  /** `false` behind a transaction pooler, where LISTEN hears nothing. */
  listen: boolean;
  /** The longest pause between two looks at the queue. */
  pollIntervalMs: number;
  onDeaf: (silentMs: number) => void;
  /** Whether a statement is under way on the connection that listens: until it ends, nothing can be heard. */
  isBusy: () => boolean;
}

const firstPauseMs = 10;
const pauseWithoutListenMsMax = 250;
/**
 * A claim that brings this many after a wait is part of a stream, for which emitters ring only now and then
 * (emit/relay-notifier.ts). So the relay looks by itself, for as long as it takes until they would ring again.
 */
const streamMin = 3;
const streamPauseMs = 5;
const streamEndsAfterMs = 100;

/**
 * Tells the lane when to look at the queue: at once when somebody rings, else after a pause. Rings come from this
 * process after a commit, and by NOTIFY from others. Neither is trusted: a LISTEN can be dead without an error (a
 * pooler, a half-open connection), so the doorbell rings for itself with each heartbeat, and while it does not hear
 * that, the pauses are short.
 */
export class Doorbell {
  readonly #options: DoorbellOptions;
  readonly #probe = `probe:${randomUUID()}`;
  readonly #unhear: () => void;
  #wake: (() => void) | undefined;
  #rung = false;
  #idleRounds = 0;
  #streamUntil = Number.NEGATIVE_INFINITY;
  /** Ends a wait that nobody rings for; kept from one to the next. */
  #pause: { ms: number; timer: NodeJS.Timeout } | undefined;
  #alarm: NodeJS.Timeout | undefined;
  #alarmAt: number | undefined;
  #probeSentAt = 0;
  #probeHeard = true;
  #hearing = false;
  #proven = false;

  constructor(options: DoorbellOptions) {
    this.#options = options;
    this.#unhear = listenInProcess(options.schema, () => this.ring());
  }

  /** Whether NOTIFY is known to arrive. */
  get hearing(): boolean {
    return this.#hearing;
  }

  /** Whether something was heard on the connection that listens: then it is one session, and most likely no pooler's. */
  get proven(): boolean {
    return this.#proven;
  }

  /** To run on every new connection that is to listen. */
  async attach(client: pg.Client): Promise<void> {
    if (!this.#options.listen) return;
    this.#proven = false;
    client.on('notification', (message) => this.#hear(message.payload ?? ''));
    await client.query(`listen ${doorbellChannel(this.#options.schema)}`);
    this.#probeHeard = true;
    this.#hearing = true;
    this.ring(); // Whatever rang while there was no connection was not heard.
  }

  /** The listening connection is gone. */
  detach(): void {
    this.#hearing = false;
    this.#proven = false;
    this.ring(); // Whoever waits in the belief that it would ring must wait in short pauses instead.
  }

  /** Rings for itself and checks that the last time was heard. */
  async probe(db: Executor): Promise<void> {
    if (!this.#options.listen) return;
    if (!this.#probeHeard && this.#options.isBusy()) return;
    if (!this.#probeHeard && this.#hearing) {
      this.#options.onDeaf(performance.now() - this.#probeSentAt);
      this.detach();
    }
    this.#probeHeard = false;
    this.#probeSentAt = performance.now();
    await notifyWith(db, this.#options.schema, this.#probe);
  }

  ring(): void {
    this.#rung = true;
    this.#wake?.();
  }

  /** Rings after this time. Only the earliest counts: whoever is woken learns when the next event is due. */
  ringIn(ms: number): void {
    if (ms >= this.#options.pollIntervalMs) return;
    const at = performance.now() + ms;
    if (this.#alarmAt !== undefined && this.#alarmAt <= at) return;
    clearTimeout(this.#alarm);
    this.#alarmAt = at;
    this.#alarm = setTimeout(() => {
      this.#alarmAt = undefined;
      this.ring();
    }, ms).unref();
  }

  /** There was work, so many events: the next pause is short again. */
  busy(claimed: number): void {
    this.#idleRounds = 0;
    if (claimed >= streamMin) this.#streamUntil = performance.now() + streamEndsAfterMs;
  }

  /** Resolves when somebody rings, or after a pause of at most `dueInMs`. A ring since the last wait counts. */
  async wait(dueInMs = Number.POSITIVE_INFINITY): Promise<void> {
    if (!this.#rung) {
      const pauseMs = Math.max(1, Math.min(dueInMs, this.#pauseMs()));
      this.#idleRounds++;
      this.#wakeIn(pauseMs);
      await new Promise<void>((resolve) => {
        this.#wake = resolve;
      });
      this.#wake = undefined;
    }
    this.#rung = false;
  }

  close(): void {
    this.#unhear();
    clearTimeout(this.#pause?.timer);
    this.#pause = undefined; // A cleared timer cannot be started again.
    clearTimeout(this.#alarm);
    this.ring();
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
    if (performance.now() < this.#streamUntil) return Math.min(streamPauseMs, this.#options.pollIntervalMs);
    const max = this.#hearing
      ? this.#options.pollIntervalMs
      : Math.min(this.#options.pollIntervalMs, pauseWithoutListenMsMax);
    return this.#hearing ? max : Math.min(max, firstPauseMs * 2 ** Math.min(this.#idleRounds, 10));
  }

  #hear(payload: string): void {
    this.#proven = true;
    if (payload === this.#probe) {
      this.#probeHeard = true;
      this.#hearing = true;
    } else if (!payload.startsWith('probe:')) {
      this.ring();
    }
  }
}
