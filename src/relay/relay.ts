import { AsyncLocalStorage } from 'node:async_hooks';
import { codedDatabaseError } from '../database/database-error.ts';
import { PostcommitError } from '../errors.ts';
import { Lifecycle } from './lifecycle.ts';
import type { RelayOptions, ResolvedRelayOptions } from './options.ts';
import { resolveOptions } from './options.ts';
import type { Counters } from './report.ts';
import { newCounters } from './report.ts';
import { RelaySession } from './session.ts';

export type RelayState = 'idle' | 'starting' | 'running' | 'stopping';

/** What a relay is doing now, and what it has done since it was created. */
export interface RelayStats extends Counters {
  state: RelayState;
  /** Its fencing token, while it is registered. */
  token: string | undefined;
  /** Deliveries under way. */
  inFlight: number;
  /** Events claimed and not begun. */
  waiting: number;
  /** Whether all of its connections stand. */
  connected: boolean;
  /** Whether LISTEN is known to work. */
  hearing: boolean;
}

// Timers and sockets keep the AsyncLocalStorage of whoever made them; a relay started in a request must not keep it.
const outsideOfRequests = AsyncLocalStorage.snapshot();

/**
 * Delivers committed events to handlers: at least once, in commit order per aggregate. Run as many as you like, on as
 * many hosts as you like; they need no coordinator but the database. Made by `createRelay`.
 *
 * States: idle, starting, running, stopping, and idle again. `start` and `stop` may be called in any order and any
 * number of times; a stop during a start waits for it and then stops.
 */
export class Relay extends Lifecycle {
  readonly #options: ResolvedRelayOptions;
  readonly #counters = newCounters();
  #state: RelayState = 'idle';
  #session: RelaySession | undefined;
  #starting: Promise<void> | undefined;
  #stopping: Promise<void> | undefined;

  constructor(options: RelayOptions) {
    super();
    this.#options = resolveOptions(options);
  }

  /** Connects, registers and begins to deliver. Fails when the database cannot be reached or is not migrated. */
  start(): Promise<void> {
    if (this.#state === 'running') return Promise.resolve();
    if (this.#state === 'stopping') return (this.#stopping ?? Promise.resolve()).then(() => this.start());
    this.#starting ??= outsideOfRequests(() => this.#start()).finally(() => {
      this.#starting = undefined;
    });
    return this.#starting;
  }

  /**
   * Stops claiming, lets deliveries under way finish within `stopTimeoutMs`, gives the rest back and signs off.
   * Never fails; a database that cannot be reached does not hold it up for long.
   */
  async stop(): Promise<void> {
    if (this.#state === 'idle') return;
    if (this.#starting) await this.#starting.catch(() => {});
    this.#stopping ??= this.#stop().finally(() => {
      this.#stopping = undefined;
    });
    await this.#stopping;
  }

  /**
   * Delivers what is due now and stops: for tests, cron jobs and serverless functions. Fails when the relay runs.
   *
   * @example
   * const { delivered } = await relay.runOnce();
   */
  async runOnce(): Promise<Pick<Counters, 'delivered' | 'retried' | 'dead'>> {
    if (this.#state !== 'idle') {
      throw new PostcommitError('POSTCOMMIT_E_RELAY_STATE', `runOnce() needs a relay that is idle; it is ${this.#state}.`);
    }
    const before = { ...this.#counters };
    await outsideOfRequests(() => this.#open());
    try {
      await this.#session?.runToEnd();
    } finally {
      await this.stop();
    }
    return {
      delivered: this.#counters.delivered - before.delivered,
      retried: this.#counters.retried - before.retried,
      dead: this.#counters.dead - before.dead,
    };
  }

  stats(): RelayStats {
    return {
      ...this.#counters,
      state: this.#state,
      token: this.#session?.token || undefined,
      inFlight: this.#session?.inFlight ?? 0,
      waiting: this.#session?.waiting ?? 0,
      connected: this.#session?.connected ?? false,
      hearing: this.#session?.hearing ?? false,
    };
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.stop();
  }

  async #start(): Promise<void> {
    await this.#open();
    this.#session?.run();
    this.tell('started', { relay: this.#options.name, token: this.#session?.token ?? '' });
    this.#options.logger.info({ relay: this.#options.name }, 'relay started');
  }

  async #open(): Promise<void> {
    this.#state = 'starting';
    const session = new RelaySession(this.#options, this, this.#counters);
    try {
      await session.open();
    } catch (error) {
      this.#state = 'idle';
      throw codedDatabaseError(error);
    }
    this.#session = session;
    this.#state = 'running';
  }

  async #stop(): Promise<void> {
    const session = this.#session;
    if (!session) return;
    this.#state = 'stopping';
    const { released } = await session.close();
    this.#session = undefined;
    this.#state = 'idle';
    this.tell('stopped', { relay: this.#options.name, released });
    this.#options.logger.info({ relay: this.#options.name, released }, 'relay stopped');
  }
}

/**
 * Makes a relay. Nothing happens until `start()`.
 *
 * @example
 * const relay = createRelay({
 *   connectionString: process.env.DATABASE_URL!,
 *   handlers: {
 *     'order.created': {
 *       'send-receipt': async (event, ctx) => sendReceipt(event.payload, { idempotencyKey: ctx.idempotencyKey }),
 *     },
 *   },
 * });
 * await relay.start();
 * process.once('SIGTERM', () => relay.stop());
 */
export function createRelay(options: RelayOptions): Relay {
  return new Relay(options);
}
