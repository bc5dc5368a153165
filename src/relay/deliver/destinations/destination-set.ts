import type { Executor } from '../../../database/executor.ts';
import { PostcommitError } from '../../../errors.ts';
import type { Circuit } from '../../../outbox/delivering/read-circuits.ts';
import { readCircuits } from '../../../outbox/delivering/read-circuits.ts';
import { registerDestinations } from '../../../outbox/delivering/register-destinations.ts';
import { unshelve } from '../../../outbox/delivering/unshelve.ts';
import { causeText } from '../../../telemetry/error-text.ts';
import type { Logger } from '../../../telemetry/logging.ts';
import type { Service } from '../../service/service.ts';
import { failureWithin, withTimeout } from '../../service/timeout.ts';
import type { Lifecycle } from '../../telemetry/lifecycle.ts';
import { checkHealth } from './check-health.ts';
import { CircuitBreaker } from './circuit-breaker.ts';
import { Destination } from './destination.ts';
import type { ResolvedDestination } from './destination-options.ts';
import { aliveWithinMs, closeTimeoutMs, connectWaitMs, slowBufferMin, trialMax, unshelveMax } from './tuning.ts';

export interface DestinationSetOptions {
  schema: string;
  settings: readonly ResolvedDestination[];
  /** Whether the relay has handlers too. */
  hasHandlers: boolean;
  /** For short statements, and for taking events from the shelf. */
  db: Executor;
  shelfDb: Executor;
  lifecycle: Lifecycle;
  logger: Logger;
  /** The current size limit of the buffer, in events. */
  bufferTarget: () => number;
  /** Events were put back into the queue. */
  onUnshelved: () => void;
}

/**
 * A relay's destinations: connects and closes them, syncs their circuits with the database, and unshelves events for one that
 * is up again, at a bounded rate. `DestinationRefresher` calls `refresh()` repeatedly.
 */
export class DestinationSet implements Service {
  readonly byName: ReadonlyMap<string, Destination>;
  readonly #options: DestinationSetOptions;
  readonly #breakers = new Map<string, CircuitBreaker>();
  #abandoned: readonly string[] = [];
  readonly #stopped = new AbortController();
  #starting: Promise<void> | undefined;

  constructor(options: DestinationSetOptions) {
    this.#options = options;
    const { settings, hasHandlers } = options;
    this.byName = new Map(settings.map((each) => [each.name, this.#make(each, hasHandlers || settings.length > 1)]));
  }

  /** Events in the buffer that slow destinations occupy. */
  get stuck(): number {
    let stuck = 0;
    for (const destination of this.byName.values()) stuck += destination.stuck;
    return stuck;
  }

  /** Destinations that no live relay has, as of the last refresh: any relay may shelve their events. */
  get abandoned(): readonly string[] {
    return this.#abandoned;
  }

  /** Whether events can be sent to all of them. */
  get allUp(): boolean {
    for (const breaker of this.#breakers.values()) if (!breaker.isUp) return false;
    return true;
  }

  /**
   * Connects. A destination that is down is an outage; one that rejects this relay is a configuration error, and is thrown.
   */
  start(): Promise<void> {
    this.#starting ??= this.#start();
    return this.#starting;
  }

  /** Sends nothing more, and releases what has not been sent. Calls in flight continue. */
  stopSending(): void {
    this.#stopped.abort();
    for (const breaker of this.#breakers.values()) breaker.stop();
    for (const destination of this.byName.values()) destination.stop();
  }

  async stop(): Promise<void> {
    this.stopSending();
    await this.#starting?.catch(() => {});
    const closing = this.#options.settings.map(async ({ publisher }) => publisher.close());
    await withTimeout(closeTimeoutMs, Promise.allSettled(closing));
  }

  async #start(): Promise<void> {
    if (this.#stopped.signal.aborted) return;
    const { db, schema, settings } = this.#options;
    // Also without destinations: every claim reads the shelf, so a database without one must be refused here.
    const known = await readCircuits(db, schema);
    if (settings.length === 0) {
      await this.refresh();
      return;
    }
    const failures = await Promise.all(settings.map((each) => this.#connect(each)));
    for (const [index, { name }] of settings.entries()) {
      const failure = failures[index];
      if (failure === undefined || !isLasting(failure)) continue;
      // It is already paused, perhaps because its password is being changed.
      const isPaused = known.some(({ destination, paused }) => destination === name && paused);
      if (!isPaused) throw new PostcommitError(failure.code, `(${name}) ${failure.detail}`, { cause: failure });
    }
    // Only now: a destination that rejects this relay at its first start is not registered.
    await registerDestinations(db, schema, [...this.byName.keys()]);
    for (const [index, { name }] of settings.entries()) {
      const failure = failures[index];
      if (failure !== undefined) this.#breakers.get(name)?.trip(causeText(failure), 0);
    }
    await this.refresh();
  }

  /** Reads the state of all destinations, and unshelves for those that are up. Returns how many events it unshelved. */
  async refresh(): Promise<number> {
    await Promise.all(Array.from(this.#breakers.values(), (breaker) => breaker.recordOutage()));
    const versions = new Map(Array.from(this.#breakers, ([name, breaker]) => [name, breaker.version]));
    const circuits = await this.#readCircuits();
    let unshelved = 0;
    this.#abandoned = circuits.flatMap(({ destination, abandoned }) => (abandoned ? destination : []));
    for (const circuit of circuits) {
      // The relays that have a destination unshelve its events.
      const breaker = this.#breakers.get(circuit.destination);
      if (!breaker) continue;
      breaker.apply(circuit, versions.get(circuit.destination) as number);
      if (circuit.hasShelved) unshelved += await this.#unshelve(circuit, breaker);
    }
    if (unshelved > 0) this.#options.onUnshelved();
    return unshelved;
  }

  /** Registers a destination of this relay again whose row is gone: `forget` may have run just before this relay registered. */
  async #readCircuits(): Promise<Circuit[]> {
    const { db, schema } = this.#options;
    const circuits = await readCircuits(db, schema);
    const known = new Set(circuits.map(({ destination }) => destination));
    const missing = [...this.byName.keys()].filter((name) => !known.has(name));
    if (missing.length === 0) return circuits;
    await registerDestinations(db, schema, missing);
    return readCircuits(db, schema);
  }

  /** Waits for probes in flight. Returns whether one succeeded, so that another refresh may unshelve events. */
  async probed(): Promise<boolean> {
    return (await Promise.all(Array.from(this.#breakers.values(), (breaker) => breaker.probed()))).includes(true);
  }

  #make(settings: ResolvedDestination, hasNeighbours: boolean): Destination {
    const { schema, db, lifecycle, logger } = this.#options;
    const breaker: CircuitBreaker = new CircuitBreaker({
      schema,
      db,
      settings,
      lifecycle,
      logger,
      destination: () => destination,
    });
    this.#breakers.set(settings.name, breaker);
    const { publisher, serializer, publishTimeoutMs, retryAfterMaxMs } = settings;
    const destination = new Destination({
      publisher,
      serializer,
      publishTimeoutMs,
      retryAfterMaxMs,
      hasNeighbours,
      bufferMax: () => Math.max(slowBufferMin, Math.floor(this.#options.bufferTarget() / 2)),
      isUp: () => breaker.isUp,
      isProven: () => breaker.isProven,
      isAlive: async () => {
        const signal = AbortSignal.timeout(aliveWithinMs);
        return (await failureWithin(aliveWithinMs, () => checkHealth(settings, signal))) === undefined;
      },
      onUnavailable: (reason, retryAfterMs) => breaker.trip(reason, retryAfterMs),
      onProven: () => breaker.proven(),
    });
    return destination;
  }

  /**
   * Returns why it failed. Does not wait long: one that hangs must not delay the events of the others. It may continue to
   * connect; a probe detects the result.
   */
  async #connect({ publisher, publishTimeoutMs }: ResolvedDestination): Promise<unknown> {
    const waitMs = Math.min(connectWaitMs, publishTimeoutMs);
    const signal = AbortSignal.any([AbortSignal.timeout(publishTimeoutMs), this.#stopped.signal]);
    return await failureWithin(waitMs, () => publisher.connect(signal));
  }

  async #unshelve({ destination, open, paused }: Circuit, breaker: CircuitBreaker): Promise<number> {
    const { shelfDb, schema, settings } = this.#options;
    if (open || paused || this.#stopped.signal.aborted || !breaker.isUp) return 0;
    const own = this.byName.get(destination);
    const rateMax = settings.find(({ name }) => name === destination)?.drainRateMax;
    if (own === undefined || own.stalled || rateMax === undefined) return 0;
    // Events unshelved for a destination that turns out to be down must be shelved again.
    const isTrial = !breaker.isProven;
    const countMax = Math.min(isTrial ? trialMax : unshelveMax, own.room);
    if (countMax === 0) return 0;
    return await unshelve(shelfDb, schema, { destination, rateMax, countMax, isTrial });
  }
}

/** Errors that waiting does not fix. */
function isLasting(error: unknown): error is PostcommitError {
  if (!(error instanceof PostcommitError)) return false;
  return error.code !== 'POSTCOMMIT_E_DESTINATION_UNAVAILABLE';
}
