import { setTimeout as sleep } from 'node:timers/promises';
import type { ClaimedRow } from '../outbox/delivering/claim.ts';
import { load } from '../outbox/delivering/load-payload.ts';
import { requireAllRows } from '../outbox/delivering/require-all-rows.ts';
import { requireFunctions } from '../outbox/delivering/require-functions.ts';
import { requireStorable } from '../outbox/delivering/require-storable.ts';
import { notifyRelays } from '../outbox/emitting/notify.ts';
import { requireSequence } from '../outbox/examining/examine-sequence.ts';
import { Deliverer } from './deliver/deliverer.ts';
import { DestinationSet } from './deliver/destinations/destination-set.ts';
import { InHand } from './dispatch/claimed-events.ts';
import type { Held, Verdict } from './dispatch/dispatcher.ts';
import { Dispatcher } from './dispatch/dispatcher.ts';
import { PayloadLoader } from './dispatch/payload-loader.ts';
import { SlowKeys } from './dispatch/slow-keys.ts';
import { SuspectTrials } from './dispatch/suspect-trials.ts';
import { isPrimeSuspect, isSuspect, suspectsHeldMax } from './dispatch/suspicion.ts';
import { Pace } from './lane/pace.ts';
import { PollingLane } from './lane/polling-lane.ts';
import { Lease } from './lease/lease.ts';
import { relayIdentity } from './lease/relay-identity.ts';
import type { Lifecycle } from './lifecycle.ts';
import { Maintenance } from './maintenance/maintenance.ts';
import { ForgottenSweep } from './maintenance/parked-event-sweeper.ts';
import type { ResolvedRelayOptions } from './options.ts';
import { storedNames } from './options.ts';
import { RelayLinks } from './relay-connections.ts';
import type { Counters } from './reporter.ts';
import { Reporter } from './reporter.ts';
import type { Entry } from './settle/completer.ts';
import { Completer } from './settle/completer.ts';
import { toEntry } from './settle/verdict.ts';
import { within } from './timeout.ts';
import { Doorbell } from './wake/doorbell.ts';

/**
 * One run of a relay, from connecting to signing off: the pipeline wake, claim, dispatch, deliver, settle, with the
 * lease that all of it stands on, and maintenance beside it.
 */
export class RelaySession {
  readonly #options: ResolvedRelayOptions;
  readonly #reporter: Reporter;
  readonly #links: RelayLinks;
  readonly #lease: Lease;
  readonly #sweep: ForgottenSweep;
  readonly #maintenance: Maintenance | undefined;
  readonly #doorbell: Doorbell;
  readonly #destinations: DestinationSet;
  readonly #deliverer: Deliverer;
  readonly #dispatcher: Dispatcher;
  readonly #completer: Completer;
  readonly #lane: PollingLane;
  readonly #slowKeys: SlowKeys;
  readonly #trials: SuspectTrials;
  readonly #pace: Pace;
  readonly #payloads: PayloadLoader;
  readonly #inHand = new InHand();
  #releasedAtStop = 0;
  #stopping = false;
  #closed = false;
  #quiet: (() => void) | undefined;

  constructor(options: ResolvedRelayOptions, lifecycle: Lifecycle, counters: Counters) {
    this.#options = options;
    const { schema, logger } = options;
    const identity = relayIdentity(options);
    this.#reporter = new Reporter(lifecycle, logger, counters);
    this.#doorbell = new Doorbell({
      schema,
      listen: options.listen,
      pollIntervalMs: options.pollIntervalMs,
      isBusy: () => this.#links.claims.busy,
      onDeaf: (silentMs) => this.#reporter.deaf(silentMs),
    });
    this.#links = new RelayLinks({ ...options, lifecycle, doorbell: this.#doorbell });
    const { claims, results, control, loads } = this.#links;
    this.#sweep = new ForgottenSweep({
      schema,
      db: results, // Not the heartbeat's connection: a sign of life must not wait for this.
      leaseMs: options.leaseMs,
      logger,
      onWoken: () => this.#doorbell.ring(),
    });
    this.#lease = new Lease({
      schema,
      db: control,
      relay: identity,
      leaseMs: options.leaseMs,
      logger,
      stats: () => ({ ...counters, inFlight: this.#dispatcher.inFlight, waiting: this.#dispatcher.waiting }),
      onLost: (token) => this.#onLeaseLost(token),
      onOverdue: () => this.#deliverer.abandon(new Error('The relay could not renew its lease')),
      onRescue: (lost) => {
        this.#reporter.rescued(lost);
        this.#doorbell.ring();
      },
      onBeat: async () => {
        this.#sweep.beat();
        await Promise.all([this.#doorbell.probe(control), this.#maintenance?.beat()]);
      },
    });
    this.#maintenance =
      options.maintenance &&
      new Maintenance({
        schema,
        relay: options.name,
        servers: options.servers,
        options: options.maintenance,
        control,
        leaseMs: options.leaseMs,
        token: () => this.#lease.token,
        lifecycle,
        logger,
      });
    this.#destinations = new DestinationSet({
      schema,
      settings: options.destinations,
      hasHandlers: options.handlers.size > 0,
      db: control,
      shelfDb: claims,
      holdMax: () => this.#pace.hold,
      lifecycle,
      logger,
      onUnshelved: () => this.#doorbell.ring(),
    });
    this.#deliverer = new Deliverer({
      handlers: options.handlers,
      destinations: this.#destinations.byName,
      route: options.route,
      deliverTimeoutMs: options.deliverTimeoutMs,
      noHandler: options.noHandler,
    });
    this.#payloads = new PayloadLoader({ ...options, load: (seq, bytesMax) => load(loads, schema, seq, bytesMax) });
    this.#dispatcher = new Dispatcher({
      inFlightMax: options.inFlightMax,
      takesSlot: (held) => this.#deliverer.takesSlot(held),
      runMax: (previous, next) => this.#deliverer.runMax(previous, next),
      holdMax: () => this.#pace.hold,
      load: (held, done) => this.#payloads.load(held, done),
      deliver: (row, done) => {
        if (!this.#lease.valid) done({ kind: 'release', done: row.done });
        else if (isPrimeSuspect(row)) this.#trials.deliver(row, done);
        else this.#deliverer.deliver(row, done);
      },
      onVerdict: (verdict) => this.#onVerdict(verdict),
    });
    this.#trials = new SuspectTrials({
      schema,
      db: results,
      token: () => this.#lease.token,
      payloads: this.#payloads,
      deliverer: this.#deliverer,
    });
    this.#slowKeys = new SlowKeys(this.#dispatcher, claims, schema);
    this.#completer = new Completer({
      schema,
      query: results.queryArrays,
      flushSizeMax: 2_000,
      poison: options.poison,
      logger,
      onWritten: (entry, fenced, instead) => this.#onWritten(entry, fenced, instead),
    });
    this.#pace = new Pace({ min: 2 * options.inFlightMax, max: options.prefetchMax });
    this.#lane = new PollingLane({
      schema,
      link: claims,
      doorbell: this.#doorbell,
      batchSizeMax: options.batchSizeMax,
      logger,
      token: () => (this.#lease.valid ? this.#lease.token : undefined),
      holdMax: () => this.#pace.holdMax(performance.now()),
      // What is stuck in a destination, or before it is loaded, must not keep the others from getting theirs.
      held: () => this.#held - this.#destinations.stuck - this.#payloads.stuck(options.prefetchMax - this.#pace.hold),
      heldBytes: () => this.#inHand.textLength,
      heldBytesMax: options.prefetchBytesMax,
      keysToSpare: () => this.#keysToSpare(),
      shedCrowded: () => this.#dispatcher.shedCrowded(),
      holding: () => this.#inHand.seqs(),
      suspectMax: () => Math.max(0, suspectsHeldMax - this.#inHand.suspects),
      onEnded: (token) => this.#lease.refused(token),
      targets: () => {
        const { abandoned } = this.#destinations;
        return abandoned.length > 0 ? [...identity.targets, ...abandoned] : identity.targets;
      },
      onClaimed: (rows, claimNumber, token) => this.#onClaimed(rows, claimNumber, token),
    });
  }

  /** What `stats()` of the relay tells of the session. */
  get status() {
    return {
      token: this.#lease.token || undefined,
      inFlight: this.#dispatcher.inFlight,
      waiting: this.#dispatcher.waiting,
      connected: this.#links.connected,
      hearing: this.#doorbell.hearing,
      leading: this.#maintenance?.leading ?? false,
      maintenance: this.#maintenance?.runs ?? [],
    };
  }

  /** Events in this relay's hands: not begun, under way, or not yet written down. */
  get #held(): number {
    const { waiting, inFlight } = this.#dispatcher;
    return waiting + inFlight + this.#completer.pending;
  }

  /** Connects and registers. Fails, and leaves nothing open, when the database cannot be used. */
  async open(): Promise<void> {
    try {
      await this.#links.open();
      await requireFunctions(this.#links.control, this.#options.schema);
      await requireAllRows(this.#links.control, this.#options.schema);
      await requireSequence(this.#links.control, this.#options.schema);
      await requireStorable(this.#links.control, storedNames(this.#options));
      this.#completer.begin(await this.#lease.begin());
      await this.#sweep.begin();
      await this.#destinations.open();
    } catch (error) {
      this.#doorbell.close();
      await this.#destinations.close();
      // If it had registered already, it must neither go on beating nor count as alive.
      await within(
        2_000,
        this.#lease.end().catch(() => {}),
      );
      await this.#links.close();
      throw error;
    }
  }

  run(): void {
    this.#destinations.run();
    this.#lane.start();
    this.#maintenance?.start();
  }

  /**
   * Delivers what is there now, and resolves when nothing more can be claimed. Fails when the database is away for
   * longer than a lease: whoever waits for this run is better told than left waiting.
   */
  async runToEnd(): Promise<void> {
    try {
      while (!this.#stopping) {
        await this.#whenLeased();
        const unshelved = await this.#destinations.turn();
        const { claimed, exhausted } = await this.#lane.claimOnce();
        await this.#whenIdle();
        // Without a lease nothing was claimed, whatever there is.
        if (claimed + unshelved === 0 && exhausted && this.#lease.valid && !(await this.#destinations.probed())) break;
      }
      if (!this.#stopping) await this.#maintenance?.once();
    } catch (error) {
      if (!this.#stopping) throw error;
    }
  }

  /**
   * Stops within a deadline: no new claims, what has not begun goes back at once, what is under way may finish until
   * `stopTimeoutMs` and then goes back too. Nothing of it costs an attempt (G10).
   */
  async close(): Promise<{ released: number }> {
    this.#stopping = true;
    this.#sweep.stop();
    const retired = this.#maintenance?.stop();
    const deadline = performance.now() + this.#options.stopTimeoutMs;
    this.#dispatcher.stop();
    this.#destinations.stop();
    // An answer that comes later than this is void: signing off frees what it brought.
    await within(2_000, this.#lane.stop());
    const calledBack = this.#slowKeys.callAllBack().catch(() => {});
    await within(deadline - performance.now(), this.#whenDelivered());
    if (this.#dispatcher.inFlight > 0) {
      this.#deliverer.abandon(new Error('The relay is stopping'));
      await within(1_000, this.#whenDelivered());
    }
    // What could not be written down within this time is freed by signing off, or by the lease running out.
    const closed = this.#destinations.close();
    const written = Promise.all([this.#completer.drained(), calledBack]);
    await within(Math.max(2_000, deadline - performance.now()), written);
    await retired;
    await within(2_000, this.#signOff());
    this.#closed = true;
    this.#completer.begin('');
    this.#doorbell.close();
    this.#quiet?.();
    // In this order: a look at the destinations may wait for a connection, and ends when the connections are closed.
    await this.#links.close();
    await closed;
    return { released: this.#releasedAtStop };
  }

  #keysToSpare(): readonly string[] | Promise<readonly string[]> {
    const withBroken = (keys: readonly string[]) => [...keys, ...this.#dispatcher.brokenKeys()];
    const aside = this.#slowKeys.putAside();
    return aside instanceof Promise ? aside.then(withBroken) : withBroken(aside);
  }

  #onClaimed(rows: ClaimedRow[], claimNumber: number, token: string): void {
    // Claimed under a lease that was lost meanwhile: the rows are free for whoever claims next.
    if (token === this.#lease.token && rows.length > 0) {
      this.#reporter.claimed(rows);
      this.#pace.busy(performance.now());
      const batch = rows as Held[];
      for (const held of batch) {
        held.claimNumber = claimNumber;
        this.#inHand.add(held);
      }
      this.#dispatcher.accept(batch);
    }
    this.#dispatcher.claimsAnswered(claimNumber);
  }

  #onVerdict(verdict: Verdict): void {
    if (this.#stopping && verdict.outcome === 'release') this.#releasedAtStop++;
    if (verdict.held.load !== undefined) this.#payloads.release(verdict.held);
    this.#completer.add(toEntry(verdict, this.#options));
  }

  #onWritten(entry: Entry, fenced: boolean, instead = entry): void {
    this.#inHand.delete(entry.held);
    if (isSuspect(entry.held)) this.#doorbell.ring(); // For the next suspect.
    this.#pace.done();
    if ('failure' in entry) {
      const { failure, held } = entry;
      const as = failure.fate === 'shelve' ? 'shelved' : 'given back';
      if (held.key !== null) this.#dispatcher.confirm(held.key, as, this.#lane.lastClaim);
      // A retry due before the next look at the queue, or something another relay may now take.
      if (failure.fate !== 'shelve') this.#doorbell.ringIn(('delayMs' in failure ? failure.delayMs : undefined) ?? 0);
      if (held.key !== null && 'errors' in failure) this.#slowKeys.failed(held.key);
    }
    const { key, attempts } = entry.held;
    if (key !== null && 'settlement' in entry && attempts > 0) this.#slowKeys.recovered(key);
    if (key !== null && this.#slowKeys.wantsMore(key)) this.#doorbell.ring();
    this.#reporter.written(instead, fenced);
    this.#lane.roomMade();
    if (this.#held === 0) {
      this.#pace.idle(performance.now());
      this.#quiet?.();
    }
  }

  #onLeaseLost(token: string): void {
    this.#reporter.leaseLost(this.#options.name, token);
    this.#completer.begin('');
    this.#dispatcher.forget();
    this.#inHand.clear();
    this.#payloads.forget();
    this.#deliverer.abandon(new Error('The relay lost its lease'));
    this.#quiet?.();
    if (!this.#stopping) void this.#registerAnew();
  }

  async #registerAnew(): Promise<void> {
    // What still runs was begun under the old lease; under the new one the same events may come again.
    await within(1_000, this.#whenDelivered());
    while (!this.#stopping) {
      try {
        this.#completer.begin(await this.#lease.renewIdentity());
        this.#doorbell.ring();
        return;
      } catch {
        await sleep(500);
      }
    }
  }

  async #whenDelivered(): Promise<void> {
    while (this.#dispatcher.inFlight > 0) await sleep(5);
  }

  async #whenLeased(): Promise<void> {
    const deadline = performance.now() + this.#options.leaseMs;
    while (!this.#lease.valid && !this.#stopping) {
      if (performance.now() > deadline) throw new Error('Connection terminated: the lease could not be renewed');
      await sleep(20);
    }
  }

  async #whenIdle(): Promise<void> {
    while (this.#held > 0 && !this.#closed && this.#lease.valid) {
      const quiet = new Promise<void>((resolve) => {
        this.#quiet = resolve;
      });
      await within(250, quiet); // Nothing tells the exact moment at which the lease is no longer valid.
    }
    this.#quiet = undefined;
  }

  async #signOff(): Promise<void> {
    try {
      await this.#lease.end();
      await notifyRelays(this.#links.control, this.#options.schema); // Another relay may go on with what was given back.
    } catch (error) {
      this.#options.logger.warn({ err: String(error) }, 'could not sign off; the lease will run out instead');
    }
  }
}
