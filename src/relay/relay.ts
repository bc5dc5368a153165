import { AsyncLocalStorage } from 'node:async_hooks';
import type { EventCatalogue } from '../catalogue/catalogue.ts';
import { codedDatabaseError } from '../database/database-error.ts';
import { PostcommitError } from '../errors.ts';
import type { HttpServer, RequestConnection } from '../http/serve.ts';
import { serveHttp } from '../http/serve.ts';
import { errorText } from '../telemetry/error-text.ts';
import { SparseLog } from '../telemetry/logging.ts';
import { readinessOf, relayEndpoints } from './endpoints.ts';
import type { LaneState } from './lane/lane-state.ts';
import type { MaintenanceRun } from './maintenance/maintenance.ts';
import type { RelayOptions, ResolvedRelayOptions } from './options.ts';
import { requireTargets, resolveOptions } from './options.ts';
import type { RunOnceOptions, RunOnceResult } from './run-once-options.ts';
import { resolveRunOnce } from './run-once-options.ts';
import { RelaySession } from './session.ts';
import type { Counters } from './telemetry/counters.ts';
import { newCounters } from './telemetry/counters.ts';
import { Lifecycle } from './telemetry/lifecycle.ts';

export type RelayState = 'idle' | 'starting' | 'running' | 'stopping';

/** What a relay is doing now, and what it has done since it was created. */
export interface RelayStats extends Counters {
  state: RelayState;
  /** Its fencing token, while it is registered. */
  token: string | undefined;
  /** Deliveries in flight. */
  inFlight: number;
  /** Events claimed and not begun. */
  waiting: number;
  /** The same by queue. Empty while the relay is not running. */
  queues: Record<string, { inFlight: number; waiting: number }>;
  /** Whether all of its connections are open. */
  connected: boolean;
  /** How it learns of new events, while it is running. */
  lane: LaneState | undefined;
  /** Whether notifications (LISTEN) are known to arrive. If not, it polls more often. */
  listening: boolean;
  /** Whether it is the one of all relays that does maintenance now. */
  leading: boolean;
  /** What each task of maintenance did when this relay last ran it. */
  maintenance: MaintenanceRun[];
}

const noSession = {
  token: undefined,
  inFlight: 0,
  waiting: 0,
  queues: {},
  lane: undefined,
  connected: false,
  listening: false,
  leading: false,
  maintenance: [],
};

// Timers and sockets keep the AsyncLocalStorage of the code that made them; a relay started in a request must not keep it.
const outsideOfRequests = AsyncLocalStorage.snapshot();

/**
 * Delivers committed events to handlers and destinations: at least once, in commit order per aggregate. Run as many as
 * you like, on as many hosts as you like; they need no coordinator but the database. Made by `createRelay`.
 *
 * States: idle, starting, running, stopping, and idle again. `start` and `stop` may be called in any order and any number of
 * times: they run one after the other, so the last one decides.
 */
export class Relay extends Lifecycle {
  readonly #given: RelayOptions | (() => RelayOptions);
  #resolved: ResolvedRelayOptions | undefined;
  readonly #counters = newCounters();
  #state: RelayState = 'idle';
  #session: RelaySession | undefined;
  #server: HttpServer | undefined;
  readonly #log = new SparseLog();
  /** The last call that has not finished yet. */
  #turn: { doing: 'start' | 'stop' | 'runOnce'; done: Promise<unknown> } | undefined;
  #stopping: Promise<void> | undefined;
  #interrupted = false;

  /** A function is called once, when the relay first starts: for a container that makes handlers and publishers until then. */
  constructor(options: RelayOptions | (() => RelayOptions)) {
    super();
    this.#given = options;
    if (typeof options === 'function') return;
    this.#resolved = resolveOptions(options);
    // Not for a function: a container has a check and an advice of its own.
    requireTargets(this.#resolved);
  }

  /** Connects, registers and starts to deliver. Fails when the database cannot be reached or is not migrated. */
  start(): Promise<void> {
    if (this.#turn === undefined && this.#state === 'running') return Promise.resolve();
    return this.#inTurn('start', () => (this.#state === 'running' ? Promise.resolve() : this.#start()));
  }

  /**
   * Stops claiming, lets deliveries in flight finish within `stopTimeoutMs`, releases the rest and deregisters.
   * Never fails; a database that cannot be reached delays it for some seconds at most.
   */
  stop(): Promise<void> {
    if (this.#turn?.doing === 'runOnce') return this.#interrupt(this.#turn.done);
    if (this.#turn === undefined && this.#state === 'idle') return Promise.resolve();
    return this.#inTurn('stop', () => this.#stop());
  }

  /**
   * Delivers what is due now and stops: for tests, cron jobs and serverless functions. It may run beside other relays and other
   * calls of `runOnce()`, in any process: they share the events. When it has returned, the relay is deregistered, has no connection
   * open and owns no event. Fails when this relay runs, and when the database is unreachable for longer than a lease.
   *
   * @example
   * const { delivered, complete } = await relay.runOnce({ timeoutMs: 45_000 });
   */
  async runOnce(options: RunOnceOptions = {}): Promise<RunOnceResult> {
    const { timeoutMs } = resolveRunOnce(options);
    if (this.#turn !== undefined || this.#state !== 'idle') {
      const state = this.#turn?.doing === 'runOnce' ? 'in another runOnce()' : this.#state;
      throw new PostcommitError('POSTCOMMIT_E_RELAY_STATE', `runOnce() needs a relay that is idle; it is ${state}.`);
    }
    const before = { ...this.#counters };
    let complete = false;
    this.#interrupted = false;
    const done = this.#inTurn('runOnce', async () => {
      await this.#open();
      try {
        if (!this.#interrupted) complete = (await this.#session?.runToEnd()) ?? false;
      } catch (error) {
        throw codedDatabaseError(error);
      } finally {
        await this.#stop();
      }
    });
    const timer = timeoutMs === undefined ? undefined : setTimeout(() => void this.#interrupt(done), timeoutMs);
    try {
      await done;
    } finally {
      clearTimeout(timer);
    }
    return {
      delivered: this.#counters.delivered - before.delivered,
      failed: this.#counters.failed - before.failed,
      deadLettered: this.#counters.deadLettered - before.deadLettered,
      complete,
    };
  }

  stats(): RelayStats {
    return {
      ...this.#counters,
      state: this.#state,
      ...(this.#session?.status ?? noSession),
    };
  }

  /** The address of its endpoints, while it serves them (option `http`). */
  get httpUrl(): string | undefined {
    return this.#server?.url;
  }

  /**
   * Returns the response to `/livez`, `/readyz` or `/metrics`, for a server of your own: see the option `http`. `connection` is
   * passed on to `http.fetch`: a dashboard there counts wrong tokens by `{ remoteAddress }`.
   *
   * @example
   * const response = await relay.fetch(new Request('http://localhost/readyz'));
   * if (!response.ok) console.warn(await response.text());
   */
  async fetch(request: Request, connection?: RequestConnection): Promise<Response> {
    const { metrics, http } = this.#options;
    return relayEndpoints(() => readinessOf(this.stats()), metrics, http?.fetch)(request, connection);
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.stop();
  }

  protected override onListenerError(name: string, error: unknown): void {
    this.#log.say(`listener:${name}`, (suppressed) =>
      this.#options.logger.error(
        { suppressed, lifecycle: name, error: errorText(error) },
        'a lifecycle listener threw',
      ),
    );
  }

  /** Calls run one after the other, so that the last one decides. A call that repeats the one before it shares its promise. */
  #inTurn(doing: 'start' | 'stop' | 'runOnce', work: () => Promise<void>): Promise<void> {
    const before = this.#turn;
    if (before?.doing === doing) return before.done as Promise<void>;
    const begin = () => outsideOfRequests(work);
    const done = (before ? before.done.then(begin, begin) : begin()).finally(() => {
      if (this.#turn?.done === done) this.#turn = undefined;
    });
    this.#turn = { doing, done };
    return done;
  }

  async #interrupt(runOnce: Promise<unknown>): Promise<void> {
    this.#interrupted = true;
    if (this.#session) await this.#stop();
    await runOnce.catch(() => {}); // The caller of runOnce() gets the error.
  }

  async #start(): Promise<void> {
    // First: a probe sees that the relay is starting, and a port that is taken fails the start before any event is claimed.
    await this.#serve();
    try {
      await this.#open();
      await this.#session?.run();
    } catch (error) {
      await this.#stopServing();
      throw error;
    }
    this.tell('started', { relay: this.#options.name, token: this.#session?.status.token ?? '' });
    this.#options.logger.info({ relay: this.#options.name }, 'relay started');
  }

  async #serve(): Promise<void> {
    const { http, logger } = this.#options;
    if (http === undefined) return;
    this.#server = await serveHttp({
      ...http,
      fetch: (request, connection) => this.fetch(request, connection),
      onError: (error) =>
        this.#log.say('http', (suppressed) =>
          logger.error({ suppressed, error: errorText(error) }, 'an HTTP request failed'),
        ),
    });
    logger.info({ url: this.#server.url }, 'serving /livez, /readyz and /metrics');
  }

  async #stopServing(): Promise<void> {
    const server = this.#server;
    this.#server = undefined;
    await server?.stop();
  }

  get #options(): ResolvedRelayOptions {
    this.#resolved ??= resolveOptions(typeof this.#given === 'function' ? this.#given() : this.#given);
    return this.#resolved;
  }

  async #open(): Promise<void> {
    const session = new RelaySession(this.#options, this, this.#counters);
    this.#state = 'starting';
    try {
      await session.start();
    } catch (error) {
      this.#state = 'idle';
      throw codedDatabaseError(error);
    }
    this.#session = session;
    this.#state = 'running';
  }

  #stop(): Promise<void> {
    this.#stopping ??= this.#close().finally(() => {
      this.#stopping = undefined;
    });
    return this.#stopping;
  }

  async #close(): Promise<void> {
    const session = this.#session;
    if (!session) return;
    this.#state = 'stopping';
    await session.stop();
    const released = session.releasedAtStop;
    this.#session = undefined;
    await this.#stopServing();
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
export function createRelay<Catalogue extends EventCatalogue = EventCatalogue>(
  options: RelayOptions<Catalogue>,
): Relay {
  // Handlers of a catalogue take fewer events; the relay passes each only those.
  return new Relay(options as unknown as RelayOptions);
}
