import type { Executor } from '../../../database/executor.ts';
import type { Circuit } from '../../../outbox/delivering/circuit.ts';
import {
  circuitProven,
  closeCircuit,
  openCircuit,
  probeFailed,
  takeProbe,
} from '../../../outbox/delivering/circuit.ts';
import { causeText } from '../../../telemetry/error-text.ts';
import type { Logger } from '../../../telemetry/logging.ts';
import type { Lifecycle } from '../../lifecycle.ts';
import { failureWithin } from '../../timeout.ts';
import type { Destination } from './destination.ts';
import type { ResolvedDestination } from './destination-options.ts';

export interface CircuitBreakerOptions {
  schema: string;
  db: Executor;
  settings: ResolvedDestination;
  destination: () => Destination;
  lifecycle: Lifecycle;
  logger: Logger;
}

/** How long a publisher may take to notice that its time is over. */
const signalGraceMs = 500;

/**
 * Whether one destination may be sent to. Its state is shared by all relays through outbox_destinations: one relay that
 * meets an outage opens the circuit for all, and one at a time probes. This relay does not wait for its own note to be
 * written: from the first failure on nothing more is sent.
 */
export class CircuitBreaker {
  readonly #options: CircuitBreakerOptions;
  #down = false;
  #paused = false;
  /** An outage that the books do not know of yet. */
  #unwritten: { error: string; retryAfterMs: number } | undefined;
  /** Grows with each change that the books may not know of. */
  #version = 0;
  #probing: Promise<void> | undefined;
  /** It answers again, and nothing has got through yet. */
  #unproven = false;
  /** This relay itself could not reach it: that another one can is not enough. */
  #unreached = false;
  /** A probe succeeded since the last look at the books. */
  #closed = false;
  /** Whether the world was told that it is away. */
  #toldDown = false;
  #stopped = false;

  constructor(options: CircuitBreakerOptions) {
    this.#options = options;
  }

  get isUp(): boolean {
    return !this.#down && !this.#paused;
  }

  /** Whether it is known to take events. Until then one event at a time is enough to find out. */
  get isProven(): boolean {
    return !this.#unproven;
  }

  /** Nothing is probed or written down any more. */
  stop(): void {
    this.#stopped = true;
  }

  /** To be taken before the books are read, and handed in with what they say. */
  get version(): number {
    return this.#version;
  }

  /** Waits for a probe under way. True: the destination is back, and nobody has looked at the books since. */
  async probed(): Promise<boolean> {
    await this.#probing;
    return this.#closed;
  }

  /** The destination is away. */
  trip(error: string, retryAfterMs: number): void {
    if (this.#down) return;
    this.#version++;
    this.#unreached = true;
    this.#goDown(error);
    this.#unwritten = { error, retryAfterMs };
    void this.writeDown().catch(() => {}); // Tried again with each look at the books.
  }

  /** Something got through: the next outage is probed soon again. */
  proven(): void {
    if (!this.#unproven) return;
    this.#unproven = false;
    this.#version++;
    this.#tellUp();
    const { db, schema, settings } = this.#options;
    circuitProven(db, schema, settings.name).catch(() => {}); // The next one that gets through tries again.
  }

  /** Writes an outage down that could not be before. */
  async writeDown(): Promise<void> {
    const outage = this.#unwritten;
    if (outage === undefined) return;
    const { db, schema, settings } = this.#options;
    await openCircuit(db, schema, { destination: settings.name, ...outage }, settings);
    this.#version++;
    this.#unwritten = undefined;
  }

  /** What the books say, as of a moment at which `version` was this. */
  apply(circuit: Circuit, version: number): void {
    const { lifecycle, logger, settings, destination } = this.#options;
    const { name } = settings;
    if (circuit.paused !== this.#paused) {
      this.#paused = circuit.paused;
      lifecycle.tell(circuit.paused ? 'destinationPaused' : 'destinationResumed', { destination: name });
      logger.info({ destination: name }, circuit.paused ? 'destination is paused' : 'destination is resumed');
      if (circuit.paused) destination().shelveWaiting();
    }
    if (version !== this.#version || this.#unwritten !== undefined) return;
    if (circuit.open && !this.#down) this.#goDown(circuit.error ?? 'unknown');
    if (!circuit.open) this.#closed = false;
    if (!circuit.open && this.#down && this.#unreached) {
      if (!this.#stopped) this.#probing ??= this.#reach();
      return;
    }
    if (!circuit.open) this.#down = false;
    this.#unproven = !circuit.open && circuit.probes > 0;
    // With nothing to send, its answer to the probe has to do.
    if (!circuit.open && (circuit.probes === 0 || !circuit.hasShelved)) this.#tellUp();
    if (circuit.probeDue && !this.#stopped) this.#probing ??= this.#probe();
  }

  #goDown(error: string): void {
    const { lifecycle, logger, settings, destination } = this.#options;
    this.#down = true;
    if (!this.#toldDown) {
      this.#toldDown = true;
      lifecycle.tell('destinationDown', { destination: settings.name, error });
      logger.warn(
        { destination: settings.name, error },
        'destination is away; its events wait and lose no attempt, others go on',
      );
    }
    destination().shelveWaiting();
  }

  #tellUp(): void {
    if (!this.#toldDown) return;
    this.#toldDown = false;
    const { lifecycle, logger, settings } = this.#options;
    lifecycle.tell('destinationUp', { destination: settings.name });
    logger.info({ destination: settings.name }, 'destination is back; sending what waited for it');
  }

  /** The others can reach it. Can this relay? */
  async #reach(): Promise<void> {
    this.#unreached = (await this.#failure()) !== undefined;
    this.#probing = undefined;
  }

  /** One relay at a time. A failure to write the result down only means that another probe follows. */
  async #probe(): Promise<void> {
    const { db, schema, settings } = this.#options;
    const { name, publishTimeoutMs } = settings;
    try {
      if (!(await takeProbe(db, schema, name, 2 * publishTimeoutMs))) return;
      const error = await this.#failure();
      if (this.#stopped) return; // It may have failed only because the publisher is being closed.
      this.#unreached = error !== undefined;
      if (error !== undefined) {
        await probeFailed(db, schema, { destination: name, error }, settings);
        return;
      }
      await closeCircuit(db, schema, name);
      this.#closed = true;
    } catch {
      // The database is away: the books stay as they are.
    } finally {
      this.#probing = undefined;
    }
  }

  /** Why it gives no sign of life; `undefined` if it does. One that ignores its signal gives none. */
  async #failure(): Promise<string | undefined> {
    const { publisher, publishTimeoutMs } = this.#options.settings;
    const signal = AbortSignal.timeout(publishTimeoutMs);
    const failure = await failureWithin(publishTimeoutMs + signalGraceMs, () => publisher.health(signal));
    return failure === undefined ? undefined : causeText(failure);
  }
}
