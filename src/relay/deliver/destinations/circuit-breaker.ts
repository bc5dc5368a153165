import type { Executor } from '../../../database/executor.ts';
import { circuitProven, closeCircuit } from '../../../outbox/delivering/close-circuit.ts';
import { openCircuit } from '../../../outbox/delivering/open-circuit.ts';
import type { Circuit } from '../../../outbox/delivering/read-circuits.ts';
import { probeFailed, takeCircuitProbe } from '../../../outbox/delivering/take-circuit-probe.ts';
import { causeText } from '../../../telemetry/error-text.ts';
import type { Logger } from '../../../telemetry/logging.ts';
import { StateMachine } from '../../service/state-machine.ts';
import { failureWithin } from '../../service/timeout.ts';
import type { Lifecycle } from '../../telemetry/lifecycle.ts';
import { checkHealth } from './check-health.ts';
import type { Destination } from './destination.ts';
import type { ResolvedDestination } from './destination-options.ts';
import { healthGraceMs } from './tuning.ts';

export interface CircuitBreakerOptions {
  schema: string;
  db: Executor;
  settings: ResolvedDestination;
  destination: () => Destination;
  lifecycle: Lifecycle;
  logger: Logger;
}

/** Whether relays send to a destination. `OutageDetector` decides when it opens. `trial`: a probe succeeded, and the destination has processed no event yet. */
type CircuitState = 'closed' | 'open' | 'trial';

/**
 * Whether one destination may be sent to. Its state is shared by all relays through a row in the database: one relay that
 * detects an outage opens the circuit for all, and one relay at a time probes. This relay does not wait until its outage is
 * recorded: from the first failure on nothing more is sent.
 *
 * States: `closed`, the destination takes events; `open`, it is down, and probed; `trial`, a probe succeeded, and single
 * events are sent to find out. An operator's pause is independent of these.
 */
export class CircuitBreaker {
  readonly #options: CircuitBreakerOptions;
  readonly #state = new StateMachine<CircuitState>('circuit breaker', 'closed', {
    closed: ['open', 'trial'],
    open: ['closed', 'trial'],
    trial: ['closed', 'open'],
  });
  #paused = false;
  /** An outage that is not recorded in the database yet. */
  #unrecorded: { error: string; retryAfterMs: number } | undefined;
  /** Grows with each change that the database may not know of. */
  #version = 0;
  #probing: Promise<void> | undefined;
  /** This relay itself could not reach the destination: it is not enough that another relay can. */
  #unreached = false;
  /** A probe succeeded since the state was last read. */
  #probeSucceeded = false;
  /** Whether the outage was reported. */
  #reportedDown = false;
  #stopped = false;

  constructor(options: CircuitBreakerOptions) {
    this.#options = options;
  }

  get isUp(): boolean {
    return !this.#state.is('open') && !this.#paused;
  }

  /** Whether it is known to take events. Until then one event at a time is enough to find out. */
  get isProven(): boolean {
    return !this.#state.is('trial');
  }

  /** Stops probing and recording. */
  stop(): void {
    this.#stopped = true;
  }

  /** Read this before the state in the database, and pass it to `apply` with the state. */
  get version(): number {
    return this.#version;
  }

  /** Waits for a probe in flight. Returns whether one has succeeded since the state was last read. */
  async probed(): Promise<boolean> {
    await this.#probing;
    return this.#probeSucceeded;
  }

  /** The destination is down. */
  trip(error: string, retryAfterMs: number): void {
    if (this.#state.is('open')) return;
    this.#version++;
    this.#unreached = true;
    this.#open(error, 'destination down');
    this.#unrecorded = { error, retryAfterMs };
    void this.recordOutage().catch(() => {}); // Retried with each refresh.
  }

  /** The destination has processed an event: the next outage is probed soon again. */
  proven(): void {
    if (!this.#state.is('trial')) return;
    this.#state.to('closed');
    this.#version++;
    this.#reportUp();
    const { db, schema, settings } = this.#options;
    circuitProven(db, schema, settings.name).catch(() => {}); // The next processed event retries this.
  }

  /** Records an outage that could not be recorded before. */
  async recordOutage(): Promise<void> {
    const outage = this.#unrecorded;
    if (outage === undefined) return;
    const { db, schema, settings } = this.#options;
    await openCircuit(db, schema, { destination: settings.name, ...outage }, settings);
    this.#version++;
    this.#unrecorded = undefined;
  }

  /** Applies the state in the database, as of a moment when `version` had this value. */
  apply(circuit: Circuit, version: number): void {
    this.#applyPause(circuit.paused);
    if (version !== this.#version || this.#unrecorded !== undefined) return;
    if (circuit.open) {
      if (!this.#state.is('open')) this.#open(circuit.error ?? 'unknown', 'destination recorded as down');
    } else {
      this.#probeSucceeded = false;
      if (this.#state.is('open') && this.#unreached) {
        if (!this.#stopped) this.#probing ??= this.#reach();
        return;
      }
      this.#state.to(circuit.probes > 0 ? 'trial' : 'closed');
      // With nothing to send, the successful probe is the only proof.
      if (circuit.probes === 0 || !circuit.hasShelved) this.#reportUp();
    }
    if (circuit.probeDue && !this.#stopped) this.#probing ??= this.#probe();
  }

  #applyPause(paused: boolean): void {
    if (paused === this.#paused) return;
    this.#paused = paused;
    const { lifecycle, logger, settings, destination } = this.#options;
    lifecycle.tell(paused ? 'destinationPaused' : 'destinationResumed', { destination: settings.name });
    logger.info({ destination: settings.name }, paused ? 'destination paused' : 'destination resumed');
    if (paused) destination().shelveWaiting();
  }

  #open(error: string, what: string): void {
    const { lifecycle, logger, settings, destination } = this.#options;
    this.#state.to('open');
    if (!this.#reportedDown) {
      this.#reportedDown = true;
      lifecycle.tell('destinationDown', { destination: settings.name, error });
      logger.warn({ destination: settings.name, error }, `${what}, its events stay queued`);
    }
    destination().shelveWaiting();
  }

  #reportUp(): void {
    if (!this.#reportedDown) return;
    this.#reportedDown = false;
    const { lifecycle, logger, settings } = this.#options;
    lifecycle.tell('destinationUp', { destination: settings.name });
    logger.info({ destination: settings.name }, 'destination up, sending its events');
  }

  /** Checks whether this relay can reach it too, after other relays could. */
  async #reach(): Promise<void> {
    this.#unreached = (await this.#failure()) !== undefined;
    this.#probing = undefined;
  }

  /** One relay at a time. If the result cannot be recorded, another probe follows. */
  async #probe(): Promise<void> {
    const { db, schema, settings } = this.#options;
    const { name, publishTimeoutMs } = settings;
    try {
      if (!(await takeCircuitProbe(db, schema, name, 2 * publishTimeoutMs))) return;
      const error = await this.#failure();
      if (this.#stopped) return; // It may have failed only because the publisher is being closed.
      this.#unreached = error !== undefined;
      if (error !== undefined) {
        await probeFailed(db, schema, { destination: name, error }, settings);
        return;
      }
      await closeCircuit(db, schema, name);
      this.#probeSucceeded = true;
    } catch {
      // The database is unreachable: the recorded state stays.
    } finally {
      this.#probing = undefined;
    }
  }

  /** Why it is not healthy, or did not answer; `undefined` if it is. */
  async #failure(): Promise<string | undefined> {
    const { settings } = this.#options;
    const { publishTimeoutMs } = settings;
    const signal = AbortSignal.timeout(publishTimeoutMs);
    const failure = await failureWithin(publishTimeoutMs + healthGraceMs, () => checkHealth(settings, signal));
    return failure === undefined ? undefined : causeText(failure);
  }
}
