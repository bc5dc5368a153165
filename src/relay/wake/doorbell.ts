import { randomUUID } from 'node:crypto';
import type pg from 'pg';
import type { Executor } from '../../database/executor.ts';
import { doorbellChannel } from '../../database/identifier.ts';
import { listenInProcess, notifyWith } from '../../outbox/emitting/notify.ts';
import { relayPacing } from '../../outbox/emitting/notify-pacing.ts';
import type { Service } from '../service/service.ts';
import { StateMachine } from '../service/state-machine.ts';
import { firstPauseMs, pauseWithoutListenMsMax } from './tuning.ts';

export interface DoorbellOptions {
  schema: string;
  /** `false` behind a transaction pooler, where LISTEN receives nothing. */
  listen: boolean;
  /** The longest time between two claims. */
  pollIntervalMs: number;
  onDeaf: (silentMs: number) => void;
  /** Whether a statement is under way on the connection that listens: until it ends, no notification is received. */
  isBusy: () => boolean;
}

/** `idle` before it is started, `polling` without a connection that listens, `deaf` with one that receives nothing. */
type DoorbellState = 'idle' | 'polling' | 'listening' | 'deaf' | 'stopped';

/**
 * Tells the lane when to claim: immediately after a notification, otherwise after a pause. Notifications come from this
 * process after a commit, and by NOTIFY from others. LISTEN can be dead without an error (a pooler, a half-open connection),
 * so the doorbell notifies itself with each heartbeat. While it does not receive that, it is `deaf` and the pauses are short.
 */
export class Doorbell implements Service {
  readonly #options: DoorbellOptions;
  readonly #probe = `probe:${randomUUID()}`;
  readonly #state = new StateMachine<DoorbellState>('doorbell', 'idle', {
    idle: ['polling', 'stopped'],
    polling: ['listening', 'stopped'],
    listening: ['polling', 'deaf', 'stopped'],
    deaf: ['listening', 'polling', 'stopped'],
    stopped: [],
  });
  #unsubscribe: (() => void) | undefined;
  #wake: (() => void) | undefined;
  #notified = false;
  #idleRounds = 0;
  #streamUntil = Number.NEGATIVE_INFINITY;
  /** Ends a wait without a notification; kept from one wait to the next. */
  #pause: { ms: number; timer: NodeJS.Timeout } | undefined;
  #alarm: NodeJS.Timeout | undefined;
  #alarmAt: number | undefined;
  #probeSentAt = 0;
  #probeReceived = true;
  #proven = false;

  constructor(options: DoorbellOptions) {
    this.#options = options;
  }

  /** Whether NOTIFY is known to arrive. */
  get hearing(): boolean {
    return this.#state.is('listening');
  }

  /** Whether something was received on the connection that listens: then it is one session, and probably not a pooler's. */
  get proven(): boolean {
    return this.#proven;
  }

  async start(): Promise<void> {
    if (!this.#state.is('idle')) return;
    this.#state.to('polling');
    this.#unsubscribe = listenInProcess(this.#options.schema, () => this.ring());
  }

  async stop(): Promise<void> {
    this.#state.to('stopped');
    this.#unsubscribe?.();
    this.#unsubscribe = undefined;
    clearTimeout(this.#pause?.timer);
    this.#pause = undefined; // A cleared timer cannot be started again.
    clearTimeout(this.#alarm);
    this.ring();
  }

  /** Called for every new connection that is to listen. */
  async attach(client: pg.Client): Promise<void> {
    if (!this.#options.listen) return;
    this.#proven = false;
    client.on('notification', (message) => this.#receive(message.payload ?? ''));
    await client.query(`listen ${doorbellChannel(this.#options.schema)}`);
    this.#probeReceived = true;
    this.#listens();
    this.ring(); // Notifications sent without a connection were missed.
  }

  /** The listening connection is lost. */
  detach(): void {
    if (this.hearing || this.#state.is('deaf')) this.#state.to('polling');
    this.#proven = false;
    this.ring(); // A wait that relies on notifications must become one with short pauses.
  }

  /** Notifies itself, and checks that the last such notification was received. */
  async probe(db: Executor): Promise<void> {
    if (!this.#options.listen || this.#state.is('stopped')) return;
    if (!this.#probeReceived && this.#options.isBusy()) return;
    if (!this.#probeReceived && this.hearing) {
      this.#options.onDeaf(performance.now() - this.#probeSentAt);
      this.#state.to('deaf');
      this.#proven = false;
      this.ring();
    }
    this.#probeReceived = false;
    this.#probeSentAt = performance.now();
    await notifyWith(db, this.#options.schema, this.#probe);
  }

  ring(): void {
    this.#notified = true;
    this.#wake?.();
  }

  /**
   * Notifies the lane after this time. Only the earliest counts: the claim that it causes reports when the next event is due.
   */
  ringIn(ms: number): void {
    if (ms >= this.#options.pollIntervalMs || this.#state.is('stopped')) return;
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
    if (!this.#notified && !this.#state.is('stopped')) {
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
    const { pollIntervalMs } = this.#options;
    if (performance.now() < this.#streamUntil) return Math.min(relayPacing.streamPauseMs, pollIntervalMs);
    if (this.hearing) return pollIntervalMs;
    const max = Math.min(pollIntervalMs, pauseWithoutListenMsMax);
    return Math.min(max, firstPauseMs * 2 ** Math.min(this.#idleRounds, 10));
  }

  #receive(payload: string): void {
    this.#proven = true;
    if (payload === this.#probe) {
      this.#probeReceived = true;
      this.#listens();
    } else if (!payload.startsWith('probe:')) {
      this.ring();
    }
  }

  #listens(): void {
    if (!this.#state.is('stopped')) this.#state.to('listening');
  }
}
