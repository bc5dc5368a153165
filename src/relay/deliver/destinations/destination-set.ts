import { setTimeout as sleep } from 'node:timers/promises';
import type { Executor } from '../../../database/executor.ts';
import { PostcommitError } from '../../../errors.ts';
import type { Circuit } from '../../../outbox/delivering/circuit.ts';
import { readCircuits, registerDestinations } from '../../../outbox/delivering/circuit.ts';
import { unshelve } from '../../../outbox/delivering/unshelve.ts';
import { causeText } from '../../../telemetry/error-text.ts';
import type { Logger } from '../../../telemetry/logging.ts';
import { SparseLog } from '../../../telemetry/logging.ts';
import type { Lifecycle } from '../../lifecycle.ts';
import { failureWithin, withTimeout } from '../../timeout.ts';
import { CircuitBreaker } from './circuit-breaker.ts';
import { Destination } from './destination.ts';
import type { ResolvedDestination } from './destination-options.ts';

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
  /** Events that the relay holds at once, at the moment. */
  bufferTarget: () => number;
  /** Events are back in the queue. */
  onUnshelved: () => void;
}

/** How often the books are looked at: when all is well, when something is away, and while a shelf is emptied. */
const everyMs = { calm: 1_000, away: 500, draining: 100 };
const unshelveMax = 2_000;
/** How many are tried with a destination that is not known to be back. */
const trialMax = 10;
/** The least that a slow destination may hold back. */
const bufferMin = 16;
const closeTimeoutMs = 5_000;
/** How long a destination has for a sign of life after a failure that may not be an outage. */
const aliveWithinMs = 1_000;
/** How long the start waits for a destination, to hear whether it refuses this relay. */
const connectWaitMs = 3_000;

/**
 * A relay's destinations: connects and closes them, keeps their circuits in step with what other relays know, and
 * brings back what waited for one that has recovered, at a bounded rate.
 */
export class DestinationSet {
  readonly byName: ReadonlyMap<string, Destination>;
  readonly #options: DestinationSetOptions;
  readonly #breakers = new Map<string, CircuitBreaker>();
  readonly #log = new SparseLog();
  #abandoned: readonly string[] = [];
  #running: Promise<void> | undefined;
  #stopped = new AbortController();

  constructor(options: DestinationSetOptions) {
    this.#options = options;
    const { settings, hasHandlers } = options;
    this.byName = new Map(settings.map((each) => [each.name, this.#make(each, hasHandlers || settings.length > 1)]));
  }

  /** Events that slow destinations take their time with. */
  get stuck(): number {
    let stuck = 0;
    for (const destination of this.byName.values()) stuck += destination.stuck;
    return stuck;
  }

  /** Destinations that no living relay has, as of the last look: any relay may put their events onto the shelf. */
  get abandoned(): readonly string[] {
    return this.#abandoned;
  }

  /** Connects. A destination that is away is an outage; one that refuses this relay is a mistake, and is thrown. */
  async open(): Promise<void> {
    const { db, schema, settings } = this.#options;
    // Also without destinations: every claim looks at the shelf, so a database that has none must be refused here.
    const known = await readCircuits(db, schema);
    if (settings.length === 0) {
      await this.turn();
      return;
    }
    const failures = await Promise.all(settings.map((each) => this.#connect(each)));
    for (const [index, { name }] of settings.entries()) {
      const failure = failures[index];
      if (failure === undefined || !isLasting(failure)) continue;
      // Somebody keeps it back already, perhaps because its password is just being changed.
      const isPaused = known.some(({ destination, paused }) => destination === name && paused);
      if (!isPaused) throw new PostcommitError(failure.code, `(${name}) ${failure.detail}`, { cause: failure });
    }
    // Only now: what refuses this relay at its first start is a mistake, and nobody's destination yet.
    await registerDestinations(db, schema, [...this.byName.keys()]);
    for (const [index, { name }] of settings.entries()) {
      const failure = failures[index];
      if (failure !== undefined) this.#breakers.get(name)?.trip(causeText(failure), 0);
    }
    await this.turn();
  }

  /** Reads the destination state again and again; a relay without destinations too, for `abandoned`. */
  run(): void {
    this.#running ??= this.#loop();
  }

  /** Sends nothing more; what has not begun goes back at once. */
  stop(): void {
    this.#stopped.abort();
    for (const breaker of this.#breakers.values()) breaker.stop();
    for (const destination of this.byName.values()) destination.stop();
  }

  async close(): Promise<void> {
    this.stop();
    await this.#running;
    const closing = this.#options.settings.map(async ({ publisher }) => publisher.close());
    await withTimeout(closeTimeoutMs, Promise.allSettled(closing));
  }

  /** One look at the books. Answers how many events it brought back. */
  async turn(): Promise<number> {
    await Promise.all(Array.from(this.#breakers.values(), (breaker) => breaker.writeDown()));
    const versions = new Map(Array.from(this.#breakers, ([name, breaker]) => [name, breaker.version]));
    const circuits = await this.#readCircuits();
    let unshelved = 0;
    this.#abandoned = circuits.flatMap(({ destination, abandoned }) => (abandoned ? destination : []));
    for (const circuit of circuits) {
      // What waits for a destination of other relays is theirs to bring back.
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

  /** Waits for probes under way. True: another look at the books is worth while. */
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
      bufferMax: () => Math.max(bufferMin, Math.floor(this.#options.bufferTarget() / 2)),
      isUp: () => breaker.isUp,
      isProven: () => breaker.isProven,
      isAlive: async () => {
        const signal = AbortSignal.timeout(aliveWithinMs);
        return (await failureWithin(aliveWithinMs, () => publisher.health(signal))) === undefined;
      },
      onUnavailable: (reason, retryAfterMs) => breaker.trip(reason, retryAfterMs),
      onProven: () => breaker.proven(),
    });
    return destination;
  }

  /**
   * Answers why it did not work. Not for long: one that hangs must not keep the others from getting their events. It may
   * go on connecting; a probe finds out.
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
    // What is sent to one that is not back after all has to be shelved again.
    const isTrial = !breaker.isProven;
    const countMax = Math.min(isTrial ? trialMax : unshelveMax, own.room);
    if (countMax === 0) return 0;
    return await unshelve(shelfDb, schema, { destination, rateMax, countMax, isTrial });
  }

  async #loop(): Promise<void> {
    const { signal } = this.#stopped;
    while (!signal.aborted) {
      let pauseMs = everyMs.calm;
      try {
        const unshelved = await this.turn();
        if (unshelved > 0) pauseMs = everyMs.draining;
        else if (Array.from(this.#breakers.values()).some((breaker) => !breaker.isUp)) pauseMs = everyMs.away;
      } catch (error) {
        this.#log.say('turn', (suppressed) =>
          this.#options.logger.warn({ suppressed, err: String(error) }, 'cannot look after destinations, trying on'),
        );
      }
      // Not in step with other relays: the one that cannot reach the destination might always be the first to probe it.
      await sleep(pauseMs * (0.75 + Math.random() / 2), undefined, { signal }).catch(() => {});
    }
  }
}

/** What waiting does not mend. */
function isLasting(error: unknown): error is PostcommitError {
  if (!(error instanceof PostcommitError)) return false;
  return error.code !== 'POSTCOMMIT_E_DESTINATION_UNAVAILABLE';
}
