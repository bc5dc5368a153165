import { randomUUID } from 'node:crypto';
import type pg from 'pg';
import type { Executor } from '../../database/executor.ts';
import { doorbellChannel } from '../../database/identifier.ts';
import { listenInProcess, notifyWith, queuesNotified } from '../../outbox/emitting/notify.ts';
import type { Service } from '../service/service.ts';
import { StateMachine } from '../service/state-machine.ts';
import { QueueBell } from './queue-bell.ts';

export interface DoorbellOptions {
  schema: string;
  /** `false` behind a transaction pooler, where LISTEN receives nothing. */
  listen: boolean;
  /** The longest time between two claims. */
  pollIntervalMs: number;
  onNotificationsLost: (silentMs: number) => void;
  /** A relay had claimed an event that was cancelled. */
  onCancelled?: () => void;
  /** Whether a statement is in flight on the connection that listens: until it ends, no notification is received. */
  isBusy: () => boolean;
}

/** `idle` before it is started, `polling` without a connection that listens, `silent` with one that receives nothing. */
type DoorbellState = 'idle' | 'polling' | 'listening' | 'silent' | 'stopped';

/**
 * Receives notifications and passes them on to the lane of the queue concerned. They come from this process after a commit,
 * and by NOTIFY from others. LISTEN can be dead without an error (a pooler, a half-open connection),
 * so the doorbell notifies itself with each heartbeat. While it does not receive that, it is `silent` and the pauses are short.
 */
export class Doorbell implements Service {
  readonly #options: DoorbellOptions;
  readonly #probe = `probe:${randomUUID()}`;
  readonly #state = new StateMachine<DoorbellState>('doorbell', 'idle', {
    idle: ['polling', 'stopped'],
    polling: ['listening', 'stopped'],
    listening: ['polling', 'silent', 'stopped'],
    silent: ['listening', 'polling', 'stopped'],
    stopped: [],
  });
  #unsubscribe: (() => void) | undefined;
  readonly #bells = new Map<string, QueueBell>();
  #probeSentAt = 0;
  #probeReceived = true;
  #proven = false;

  constructor(options: DoorbellOptions) {
    this.#options = options;
  }

  /** Whether NOTIFY is known to arrive. */
  get listening(): boolean {
    return this.#state.is('listening');
  }

  /** Whether something was received on the connection that listens: then it is one session, and probably not a pooler's. */
  get proven(): boolean {
    return this.#proven;
  }

  async start(): Promise<void> {
    if (!this.#state.is('idle')) return;
    this.#state.to('polling');
    this.#unsubscribe = listenInProcess(this.#options.schema, (queues) => this.ring(queues));
  }

  async stop(): Promise<void> {
    this.#state.to('stopped');
    this.#unsubscribe?.();
    this.#unsubscribe = undefined;
    for (const bell of this.#bells.values()) bell.stop();
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
    if (this.listening || this.#state.is('silent')) this.#state.to('polling');
    this.#proven = false;
    this.ring(); // A wait that relies on notifications must become one with short pauses.
  }

  /** Notifies itself, and checks that the last such notification was received. */
  async probe(db: Executor): Promise<void> {
    if (!this.#options.listen || this.#state.is('stopped')) return;
    if (!this.#probeReceived && this.#options.isBusy()) return;
    if (!this.#probeReceived && this.listening) {
      this.#options.onNotificationsLost(performance.now() - this.#probeSentAt);
      this.#state.to('silent');
      this.#proven = false;
      this.ring();
    }
    this.#probeReceived = false;
    this.#probeSentAt = performance.now();
    await notifyWith(db, this.#options.schema, this.#probe);
  }

  /** The bell of one queue. Made once for each. */
  bell(queue: string): QueueBell {
    let bell = this.#bells.get(queue);
    if (bell === undefined) {
      const { pollIntervalMs } = this.#options;
      bell = new QueueBell({ pollIntervalMs, listening: () => this.listening });
      this.#bells.set(queue, bell);
    }
    return bell;
  }

  /** Notifies the lanes of these queues, or of all. */
  ring(queues?: readonly string[]): void {
    if (queues === undefined) for (const bell of this.#bells.values()) bell.ring();
    else for (const queue of queues) this.#bells.get(queue)?.ring();
  }

  #receive(payload: string): void {
    this.#proven = true;
    if (payload === this.#probe) {
      this.#probeReceived = true;
      this.#listens();
    } else if (payload === 'cancelled:') {
      this.#options.onCancelled?.();
    } else if (!payload.startsWith('probe:')) {
      this.ring(queuesNotified(payload));
    }
  }

  #listens(): void {
    if (!this.#state.is('stopped')) this.#state.to('listening');
  }
}
