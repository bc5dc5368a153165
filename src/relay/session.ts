import { setTimeout as sleep } from 'node:timers/promises';
import { PostcommitError } from '../errors.ts';
import { loadPayload } from '../outbox/delivering/load-payload.ts';
import { requireAllRows } from '../outbox/delivering/require-all-rows.ts';
import { requireFunctions } from '../outbox/delivering/require-functions.ts';
import { requireStorable } from '../outbox/delivering/require-storable.ts';
import { notifyRelays } from '../outbox/emitting/notify.ts';
import { requireSequence } from '../outbox/examining/examine-sequence.ts';
import { errorText } from '../telemetry/error-text.ts';
import { loadTracing } from '../telemetry/trace-context.ts';
import { CancelWatch } from './cancel/cancel-watch.ts';
import { Deliverer } from './deliver/deliverer.ts';
import { DestinationRefresher } from './deliver/destinations/destination-refresher.ts';
import { DestinationSet } from './deliver/destinations/destination-set.ts';
import { EventReader } from './deliver/event-reader.ts';
import { Planner } from './deliver/planner.ts';
import { Dispatcher } from './dispatch/dispatcher.ts';
import { PayloadLoaders } from './dispatch/payload-loaders.ts';
import { SuspectTrials } from './dispatch/suspect-trials.ts';
import { ClaimHistory } from './lane/claim-history.ts';
import { laneState } from './lane/lane-state.ts';
import { QueueLanes } from './lane/queue-lanes.ts';
import { SlowKeys } from './lane/slow-keys.ts';
import { HeartbeatThread } from './lease/heartbeat-thread.ts';
import { Lease } from './lease/lease.ts';
import { LeaseState } from './lease/lease-state.ts';
import { Maintenance } from './maintenance/maintenance.ts';
import { ParkedEventSweeper } from './maintenance/parked-event-sweeper.ts';
import { MetricsService } from './metrics/metrics-service.ts';
import { type ResolvedRelayOptions, storedNames } from './options.ts';
import { ProgressWriter } from './progress/progress-writer.ts';
import { RelayConnections } from './relay-connections.ts';
import { relayIdentity } from './relay-identity.ts';
import { explainDenied, warnIfItCannotEmit } from './rights.ts';
import { runToEnd } from './run-to-end.ts';
import { Scheduler } from './schedules/scheduler.ts';
import type { Service } from './service/service.ts';
import { withTimeout } from './service/timeout.ts';
import { Settler } from './settle/settler.ts';
import type { Counters } from './telemetry/counters.ts';
import type { Lifecycle } from './telemetry/lifecycle.ts';
import { Reporter } from './telemetry/reporter.ts';
import { Doorbell } from './wake/doorbell.ts';

/** How long a stop waits: for each step that needs the database (claims, results, deregistering), and for aborted deliveries. */
const [stopStepMs, abortedMs] = [2_000, 1_000];

/**
 * One run of a relay: creates the stages of the pipeline (wake, lane, dispatch, deliver, settle) with the lease and
 * maintenance beside them, connects them, and starts and stops them. No event passes through it.
 */
export class RelaySession implements Service {
  readonly #options: ResolvedRelayOptions;
  readonly #connections: RelayConnections;
  readonly #heartbeat: HeartbeatThread;
  readonly #leaseState = new LeaseState();
  readonly #lease: Lease;
  readonly #sweeper: ParkedEventSweeper;
  readonly #maintenance: Maintenance | undefined;
  readonly #scheduler: Scheduler | undefined;
  readonly #metrics: MetricsService;
  readonly #doorbell: Doorbell;
  readonly #destinations: DestinationSet;
  readonly #refresher: DestinationRefresher;
  readonly #progress: ProgressWriter;
  readonly #cancels: CancelWatch;
  readonly #deliverer: Deliverer;
  readonly #dispatcher: Dispatcher;
  readonly #settler: Settler;
  readonly #lanes: QueueLanes;
  #starting: Promise<void> | undefined;
  #connected = false;
  #stopping = false;

  constructor(options: ResolvedRelayOptions, lifecycle: Lifecycle, counters: Counters) {
    this.#options = options;
    const { schema, logger, events } = options;
    const identity = relayIdentity(options);
    const token = () => this.#lease.token;
    const db = () => this.#connections.control;
    this.#metrics = new MetricsService({ ...options, token, db, status: () => this.status });
    const { meter } = this.#metrics;
    const reporter = new Reporter(lifecycle, logger, counters, meter);
    this.#doorbell = new Doorbell({
      ...options,
      isBusy: () => this.#connections.claims.busy,
      onCancelled: () => this.#cancels.check(),
      onNotificationsLost: (silentMs) => reporter.notificationsLost(silentMs),
    });
    this.#connections = new RelayConnections({ ...options, lifecycle, doorbell: this.#doorbell });
    const { claims, results, control, loads, handlers } = this.#connections;

    this.#destinations = new DestinationSet({
      schema,
      settings: options.destinations,
      hasHandlers: options.handlers.all.length > 0,
      db: control,
      shelfDb: claims,
      bufferTarget: () => this.#lanes.bufferTarget(),
      lifecycle,
      logger,
      onUnshelved: () => this.#doorbell.ring(),
    });
    this.#refresher = new DestinationRefresher({ destinations: this.#destinations, logger });
    const planner = new Planner({ ...options, destinations: this.#destinations.byName });
    this.#progress = new ProgressWriter({ schema, db: results, logger, token });
    const reader = events && new EventReader({ events, unknownVersions: options.unknownVersions, logger });
    this.#deliverer = new Deliverer({
      destinations: this.#destinations.byName,
      timeoutMsMin: Math.min(options.deliverTimeoutMs, ...options.handlers.all.map(({ timeoutMs }) => timeoutMs)),
      onHandlerFree: () => this.#dispatcher.resume(),
      progress: this.#progress,
      onTargetEnded: meter && ((target, outcome, tookMs) => meter.targetEnded(target, outcome, tookMs)),
      reader,
      transactions: { schema, pool: handlers, control, token, written: () => this.#settler.written(), logger },
    });
    this.#cancels = new CancelWatch({
      schema,
      db: results,
      logger,
      token,
      isListening: () => this.#doorbell.listening,
      claimed: () => this.#lanes.events(),
      claims: () => this.#lanes.claims,
      abort: (event, reason) => {
        if (!this.#dispatcher.release(event)) this.#deliverer.abort(event, reason);
      },
      onEnded: () => {
        this.#doorbell.ring();
        notifyRelays(results, schema).catch(() => {}); // They poll, too.
      },
    });
    this.#settler = new Settler({
      ...options,
      query: (...statement) => this.#lanes.writeResult(...statement),
      onFlushed: meter && ((tookMs) => meter.flushed(tookMs)),
      onSettled: (entry, fenced, instead = entry) => {
        this.#lanes.settled(entry);
        if (this.#cancels.settled(entry.event) && fenced) reporter.cancelled(entry.event);
        else reporter.settled(instead, fenced);
      },
    });
    const payloads = new PayloadLoaders([...options.queues.keys()], {
      ...options,
      load: (seq, bytesMax) => loadPayload(loads, schema, seq, bytesMax),
    });
    const [settler, deliverer] = [this.#settler, this.#deliverer];
    const trials = new SuspectTrials({ schema, db: results, token, settler, payloads, planner, deliverer });
    const history = new ClaimHistory();
    this.#dispatcher = new Dispatcher({
      slots: options.queues,
      bufferTarget: (queue) => this.#lanes.bufferTarget(queue),
      decisions: history,
      planner,
      payloads,
      mayStart: () => this.#lease.valid,
      deliver: (event, done) => {
        if (this.#cancels.isCancelled(event)) done({ kind: 'released' });
        else this.#deliverer.deliver(event, meter?.timed(done) ?? done);
      },
      deliverAlone: (event, done) => trials.deliver(event, meter?.timed(done) ?? done),
      settle: (event, outcome) => this.#settler.settle(event, outcome),
    });

    const batchSizes = options.handlers.all.map(({ batch }) => batch?.sizeMax ?? 0);
    this.#lanes = new QueueLanes({
      ...options,
      connections: this.#connections,
      doorbell: this.#doorbell,
      gathering: batchSizes.reduce((sum, size) => sum + size, 0),
      stuck: () => this.#destinations.stuck,
      stuckLoads: (queue, max) => payloads.stuck(queue, max),
      blocked: (queue) => this.#dispatcher.blocked(queue),
      abandoned: (queue) => this.#dispatcher.of(queue).abandoned,
      history,
      slowKeys: new SlowKeys(this.#dispatcher, claims, schema),
      dispatcher: this.#dispatcher,
      token: () => (this.#lease.valid ? this.#lease.token : undefined),
      isCurrent: (claimedUnder) => claimedUnder === this.#lease.token,
      targets: () => {
        const { abandoned } = this.#destinations;
        return abandoned.length > 0 ? [...identity.targets, ...abandoned] : identity.targets;
      },
      onClaimed: (queue, rows, tookMs) => reporter.claimed(queue, rows, tookMs),
      onClaimEnded: () => this.#cancels.claimEnded(),
      onRefused: (refused) => this.#lease.refused(refused),
      written: () => this.#settler.written(),
      onClaimsLost: (gone) => this.#lease.giveUp(gone),
    });

    const leaseState = this.#leaseState;
    this.#heartbeat = new HeartbeatThread({
      ...options,
      sessionLock: options.listen,
      hostId: identity.hostId,
      leaseState,
      stats: () => ({ ...counters, ...this.#load, unknownVersions: reader?.unknownVersions ?? [] }),
      onLost: (lost) => this.#lease.refused(lost),
      onRelayLost: (lost) => {
        reporter.relayLost(lost);
        this.#cancels.check();
        this.#doorbell.ring();
      },
      onDisconnected: (error) => lifecycle.tell('disconnected', { connection: 'heartbeat', error: String(error) }),
    });
    this.#lease = new Lease({
      schema,
      db: control,
      relay: identity,
      leaseMs: options.leaseMs,
      logger,
      heartbeat: this.#heartbeat,
      leaseState,
      isStopping: () => this.#stopping,
      onRegistered: (registered) => {
        this.#settler.useToken(registered);
        this.#doorbell.ring();
      },
      onLost: async (lost) => {
        reporter.leaseLost(options.name, lost);
        this.#settler.useToken('');
        this.#dispatcher.forget();
        this.#lanes.forget();
        this.#cancels.forget();
        payloads.forget();
        this.#deliverer.abandon(new PostcommitError('POSTCOMMIT_E_LEASE_LOST'));
        // What still runs was started under the old lease; under the new one the same events may be claimed again.
        await withTimeout(abortedMs, this.#whenDelivered());
      },
      onOverdue: () => this.#deliverer.abandon(new PostcommitError('POSTCOMMIT_E_LEASE_LOST')),
      onBeat: async () => {
        this.#sweeper.beat();
        this.#cancels.check();
        const duties = [this.#maintenance, this.#scheduler, this.#metrics].map((duty) => duty?.beat());
        await Promise.all([this.#doorbell.probe(control), ...duties]);
      },
    });
    this.#sweeper = new ParkedEventSweeper({
      ...options,
      db: results, // Not `control`: leaders, who renew their duty there, must not wait for this.
      onUnparked: () => this.#doorbell.ring(),
    });
    this.#maintenance =
      options.maintenance &&
      new Maintenance({
        ...options,
        relay: options.name,
        options: options.maintenance,
        control,
        token: () => this.#lease.token,
        lifecycle,
      });
    if (options.schedules.length > 0) {
      this.#scheduler = new Scheduler({ ...options, relay: options.name, control, db: results, token, lifecycle });
    }
  }

  /** What `stats()` of the relay reports of the session. */
  get status() {
    return {
      token: this.#lease.token || undefined,
      ...this.#load,
      connected: this.#connections.connected && this.#leaseState.connected,
      listening: this.#doorbell.listening,
      leading: this.#maintenance?.leading ?? false,
      maintenance: this.#maintenance?.runs ?? [],
    };
  }

  get #load() {
    const { inFlight, waiting } = this.#dispatcher;
    // Not by assignment: a queue may be named `__proto__`.
    const loadOf = ({ inFlight, waiting }: { inFlight: number; waiting: number }) => ({ inFlight, waiting });
    const names = [...this.#options.queues.keys()];
    const queues = Object.fromEntries(names.map((queue) => [queue, loadOf(this.#dispatcher.of(queue))]));
    return { inFlight, waiting, queues, lane: laneState(this.#doorbell.listening, this.#options.listen) };
  }

  /** Connects and registers. Fails, and leaves nothing open, when the database cannot be used. */
  start(): Promise<void> {
    this.#starting ??= this.#start();
    return this.#starting;
  }

  async #start(): Promise<void> {
    const { schema } = this.#options;
    const { control } = this.#connections;
    try {
      await loadTracing();
      await this.#doorbell.start();
      const beating = this.#heartbeat.start();
      beating.catch(() => {}); // If both fail, the connections tell why.
      await this.#connections.start();
      await beating;
      this.#connected = true;
      await requireFunctions(control, schema);
      await requireAllRows(control, schema);
      await requireSequence(control, schema);
      await requireStorable(control, storedNames(this.#options));
      await this.#lease.start();
      await this.#cancels.start();
      await this.#destinations.start();
      if (this.#scheduler) await warnIfItCannotEmit(control, schema, this.#options.logger);
    } catch (error) {
      const reason = this.#connected ? await explainDenied(error, control, schema) : error;
      await this.#doorbell.stop();
      await this.#destinations.stop();
      await withTimeout(stopStepMs, this.#cancels.stop());
      // If it had registered already, it must neither send heartbeats nor count as alive.
      await withTimeout(
        stopStepMs,
        this.#lease.stop().catch(() => {}),
      );
      await Promise.all([this.#connections.stop(), this.#heartbeat.stop()]);
      throw reason;
    }
  }

  /** Delivers events from now on. */
  async run(): Promise<void> {
    await Promise.all([this.#sweeper.start(), this.#refresher.start()]);
    await this.#lanes.start();
    await this.#maintenance?.start();
    await this.#scheduler?.start();
    await this.#metrics.start();
  }

  /** Delivers what is in the queue now. Returns whether it came to the end of it. */
  async runToEnd(): Promise<boolean> {
    await this.#scheduler?.once();
    return runToEnd({
      sweeper: this.#sweeper,
      lanes: this.#lanes,
      lease: this.#lease,
      leaseMs: this.#options.leaseMs,
      destinations: this.#destinations,
      maintenance: this.#maintenance,
      isStopping: () => this.#stopping,
    });
  }

  /** Events that were released because the relay stopped. */
  get releasedAtStop(): number {
    return this.#dispatcher.releasedAtStop;
  }

  /**
   * Stops within a deadline: claims nothing more, releases events that have not started immediately, and releases deliveries
   * that are still in flight after `stopTimeoutMs`. No attempt is counted (G10).
   */
  async stop(): Promise<void> {
    this.#stopping = true;
    const deadline = performance.now() + this.#options.stopTimeoutMs;
    void this.#sweeper.stop();
    const maintained = Promise.all([this.#maintenance?.stop(), this.#scheduler?.stop(), this.#metrics.stop()]);
    this.#dispatcher.stop();
    this.#destinations.stopSending();
    const refreshed = this.#refresher.stop();
    // Events claimed later than this are free once the relay is deregistered.
    await withTimeout(stopStepMs, this.#lanes.stop());
    const undeferred = this.#lanes.undeferAll().catch(() => {});
    await withTimeout(deadline - performance.now(), this.#whenDelivered());
    if (this.#dispatcher.inFlight > 0) {
      const { logger, stopTimeoutMs } = this.#options;
      logger.warn(
        { inFlight: this.#dispatcher.inFlight, stopTimeoutMs },
        'deliveries did not finish in time, aborting them',
      );
      this.#deliverer.abandon(new PostcommitError('POSTCOMMIT_E_RELAY_STOPPING'));
      await withTimeout(abortedMs, this.#whenDelivered());
    }
    const closed = this.#destinations.stop();
    // Events that could not be settled in this time are free once the relay is deregistered, or its lease has expired.
    const settled = Promise.all([this.#settler.drained(), undeferred]);
    await withTimeout(Math.max(stopStepMs, deadline - performance.now()), settled);
    await maintained;
    await withTimeout(stopStepMs, Promise.all([this.#progress.stop(), this.#cancels.stop()]));
    await withTimeout(stopStepMs, this.#deregister());
    this.#settler.useToken('');
    await this.#doorbell.stop();
    this.#lanes.signalEmpty();
    // In this order: a refresh of the destinations may wait for a connection, and ends when the connections are closed.
    await Promise.all([this.#connections.stop(), this.#heartbeat.stop()]);
    await Promise.all([refreshed, closed]);
  }

  async #whenDelivered(): Promise<void> {
    while (this.#dispatcher.inFlight > 0) await sleep(5);
  }

  async #deregister(): Promise<void> {
    if (!this.#connected) return;
    try {
      await this.#lease.stop();
      await notifyRelays(this.#connections.control, this.#options.schema); // Other relays may claim what was released.
    } catch (error) {
      this.#options.logger.warn({ error: errorText(error) }, 'cannot deregister, the lease will expire instead');
    }
  }
}
