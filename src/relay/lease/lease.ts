import { setTimeout as sleep } from 'node:timers/promises';
import type { Executor } from '../../database/executor.ts';
import { deregisterRelay } from '../../outbox/delivering/deregister-relay.ts';
import type { RelayIdentity } from '../../outbox/delivering/register-relay.ts';
import { registerRelay } from '../../outbox/delivering/register-relay.ts';
import { errorText } from '../../telemetry/error-text.ts';
import type { Logger } from '../../telemetry/logging.ts';
import { SparseLog } from '../../telemetry/logging.ts';
import type { Service } from '../service/service.ts';
import type { Registration } from './heartbeat.ts';
import type { LeaseState } from './lease-state.ts';
import { monotonicMs } from './lease-state.ts';
import { beatAgainShare, beatShare, registerAgainMs, safeShare } from './tuning.ts';

/** What keeps a registration alive: `Heartbeat`. */
export interface RegistrationKeeper {
  keepAlive(registration: Registration): Promise<void>;
  drop(): void;
}

export interface LeaseOptions {
  schema: string;
  db: Executor;
  relay: RelayIdentity;
  leaseMs: number;
  logger: Logger;
  heartbeat: RegistrationKeeper;
  /** Written by the heartbeat. */
  leaseState: LeaseState;
  /** The relay is registered under this token: at start, and again after a lease was lost. */
  onRegistered: (token: string) => void;
  /** Whether the relay is being stopped: then it does not register again. */
  isStopping: () => boolean;
  /**
   * Another relay declared this one lost and may have taken over, or the relay gives up. It registers again once this has
   * resolved.
   */
  onLost: (token: string) => Promise<void>;
  /** The lease was not renewed for almost its whole length: another relay may take over at any time. */
  onOverdue: () => void;
  /** Runs three times per lease. */
  onBeat: () => Promise<void>;
}

/**
 * The relay's registration: one row that covers every event the relay owns. However long a handler runs, its event is not taken
 * over, and a crash is noticed. The heartbeat keeps the row alive; a relay that was declared lost registers again, under a new
 * token.
 *
 * The relay judges its own lease by the time since the heartbeat *sent* the last successful renewal, so it stops before the
 * database lets another relay take over.
 */
export class Lease implements Service {
  readonly #options: LeaseOptions;
  readonly #log = new SparseLog();
  #token = '';
  #registrations = 0;
  #overdue: NodeJS.Timeout | undefined;
  #timer: NodeJS.Timeout | undefined;
  #beating: Promise<void> | undefined;
  #starting: Promise<void> | undefined;
  #registering: Promise<unknown> | undefined;
  #state: 'idle' | 'running' | 'stopped' = 'idle';

  constructor(options: LeaseOptions) {
    this.#options = options;
  }

  get token(): string {
    return this.#token;
  }

  /** Whether deliveries may still start under this lease. */
  get valid(): boolean {
    return this.#token !== '' && this.#options.leaseState.isValid(this.#registrations, this.#options.leaseMs);
  }

  /** Registers the relay. */
  start(): Promise<void> {
    this.#starting ??= this.#start();
    return this.#starting;
  }

  async #start(): Promise<void> {
    if (this.#state !== 'idle') return;
    this.#state = 'running';
    await this.#register();
    this.#schedule(this.#options.leaseMs * beatShare);
  }

  /** The database refused this token: the relay was declared lost, or its registration was lost in a failover. */
  refused(token: string): void {
    this.#lose(token, false);
  }

  /** The database lacks what this token has claimed: deregisters it, so that what is left is free, and registers again. */
  giveUp(token: string): void {
    this.#lose(token, true);
  }

  #lose(token: string, isRegistered: boolean): void {
    if (token === '' || token !== this.#token) return;
    this.#token = '';
    clearTimeout(this.#overdue);
    this.#options.heartbeat.drop();
    void this.#registerAgain(token, isRegistered);
  }

  /** Deregisters: events the relay still owns are free immediately. Fails if the database does not respond. */
  async stop(): Promise<void> {
    this.#state = 'stopped';
    clearTimeout(this.#timer);
    clearTimeout(this.#overdue);
    await this.#beating;
    await this.#registering?.catch(() => {});
    clearTimeout(this.#overdue);
    if (this.#token === '') return;
    const token = this.#token;
    this.#token = '';
    this.#options.heartbeat.drop();
    await deregisterRelay(this.#options.db, this.#options.schema, token);
  }

  async #register(): Promise<void> {
    this.#registering = this.#registerOnce();
    await this.#registering;
  }

  async #registerOnce(): Promise<void> {
    const { db, schema, relay, leaseMs, heartbeat, onRegistered } = this.#options;
    const sentAt = monotonicMs();
    const token = await registerRelay(db, schema, { ...relay, leaseMs });
    this.#token = token;
    const keeping = heartbeat.keepAlive({ number: ++this.#registrations, token, sentAt });
    // Only at start is a failure reported to the caller: the heartbeat continues to try.
    await (this.#registrations === 1 ? keeping : keeping.catch(() => {}));
    if (token !== this.#token) return;
    this.#watch();
    onRegistered(token);
  }

  /** Reports when the lease was not renewed in time. The timer may be late: what counts is what the heartbeat wrote. */
  #watch(): void {
    clearTimeout(this.#overdue);
    if (this.#state === 'stopped') return;
    const { leaseMs, leaseState, onOverdue } = this.#options;
    const { renewedAt } = leaseState;
    const check = () => {
      if (leaseState.renewedAt === renewedAt) onOverdue();
      this.#watch();
    };
    // An overdue lease is reported again with each heartbeat that is missing.
    const leftMs = renewedAt + leaseMs * safeShare - monotonicMs();
    this.#overdue = setTimeout(check, leftMs > 0 ? leftMs : leaseMs * beatShare).unref();
  }

  #schedule(afterMs: number): void {
    if (this.#state === 'stopped') return;
    this.#timer = setTimeout(() => {
      this.#beating = this.#beat().then((succeeded) => {
        this.#beating = undefined;
        this.#schedule(this.#options.leaseMs * (succeeded ? beatShare : beatAgainShare));
      });
    }, afterMs);
  }

  async #beat(): Promise<boolean> {
    const { onBeat, logger } = this.#options;
    try {
      await onBeat();
      return true;
    } catch (error) {
      this.#log.say('beat', (suppressed) =>
        logger.warn({ suppressed, error: errorText(error) }, 'periodic work of the relay failed, retrying'),
      );
      return false;
    }
  }

  async #registerAgain(lostToken: string, isRegistered: boolean): Promise<void> {
    const { onLost, db, schema } = this.#options;
    await onLost(lostToken);
    while (this.#state === 'running' && !this.#options.isStopping()) {
      try {
        if (isRegistered) await deregisterRelay(db, schema, lostToken);
        await this.#register();
        return;
      } catch {
        await sleep(registerAgainMs);
      }
    }
  }
}
