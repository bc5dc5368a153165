import { setTimeout as sleep } from 'node:timers/promises';
import type { Executor } from '../../database/executor.ts';
import { correctFutureTimes } from '../../outbox/delivering/correct-future-times.ts';
import { deregisterRelay } from '../../outbox/delivering/deregister-relay.ts';
import type { RelayIdentity } from '../../outbox/delivering/register-relay.ts';
import { registerRelay } from '../../outbox/delivering/register-relay.ts';
import { renewLease } from '../../outbox/delivering/renew-lease.ts';
import type { LostRelay } from '../../outbox/delivering/take-over.ts';
import { takeOver } from '../../outbox/delivering/take-over.ts';
import type { Logger } from '../../telemetry/logging.ts';
import { SparseLog } from '../../telemetry/logging.ts';
import type { Service } from '../service/service.ts';
import { beatAgainShare, beatShare, clockShare, registerAgainMs, safeShare } from './tuning.ts';

export interface LeaseOptions {
  schema: string;
  db: Executor;
  relay: RelayIdentity;
  leaseMs: number;
  logger: Logger;
  stats: () => unknown;
  /** The relay is registered under this token: at start, and again after a lease was lost. */
  onRegistered: (token: string) => void;
  /** Whether the relay is being stopped: then it does not register again. */
  isStopping: () => boolean;
  /** Another relay declared this one lost, and may have taken over. The relay registers again once this has resolved. */
  onLost: (token: string) => Promise<void>;
  /** The lease was not renewed for almost its whole length: another relay may take over at any time. */
  onOverdue: () => void;
  onTakeover: (lost: LostRelay) => void;
  /** Runs with each heartbeat, on the same connection. */
  onBeat: () => Promise<void>;
}

/**
 * The relay's lease: one row, renewed three times per lease, that covers every event the relay owns. However long a handler
 * runs, its event is not taken over, and a crash is noticed within a lease. With each heartbeat the relay also declares other
 * relays lost whose lease has expired. A relay that was declared lost itself registers again, under a new token.
 *
 * The relay judges its own lease by the time since it *sent* the last successful renewal, so it stops before the database
 * lets another relay take over. It declares no relay lost until it has been in touch with the database for a whole lease
 * itself: after an outage of the database all leases have expired, and the first relays to reconnect would declare the others
 * lost.
 *
 * Leases are times of the database's clock, and that clock may be set. This process's clock measures how far it should have
 * moved between two heartbeats. Set forward by more than a third of a lease, every lease looks expired: no relay is declared
 * lost for one lease, in which the living renew. Set back, leases would expire only when it has caught up: `correctFutureTimes` moves
 * them with it.
 */
export class Lease implements Service {
  readonly #options: LeaseOptions;
  readonly #log = new SparseLog();
  #token = '';
  #renewedAt = 0;
  /** Since when every heartbeat succeeded in time. */
  #inTouchSince = 0;
  #startedAt = 0;
  /** The database's clock, and when it was read. */
  #clock: { readMs: number; askedAt: number } | undefined;
  #overdue: NodeJS.Timeout | undefined;
  #timer: NodeJS.Timeout | undefined;
  #beating: Promise<void> | undefined;
  #starting: Promise<void> | undefined;
  #registering: Promise<string> | undefined;
  #state: 'idle' | 'running' | 'stopped' = 'idle';

  constructor(options: LeaseOptions) {
    this.#options = options;
  }

  get token(): string {
    return this.#token;
  }

  /** Whether deliveries may still start under this lease. */
  get valid(): boolean {
    return this.#token !== '' && performance.now() - this.#renewedAt < this.#options.leaseMs * safeShare;
  }

  /** Registers the relay, and sends heartbeats from then on. */
  start(): Promise<void> {
    this.#starting ??= this.#start();
    return this.#starting;
  }

  async #start(): Promise<void> {
    if (this.#state !== 'idle') return;
    this.#state = 'running';
    await this.#register();
    this.#startedAt = this.#inTouchSince;
    const { leaseMs } = this.#options;
    // Immediately, not only with the first heartbeat: a relay that runs once may end before that.
    await this.#readClock();
    await this.#takeOver(leaseMs);
    this.#schedule(leaseMs * beatShare);
  }

  /** The database refused this token: the relay was declared lost, or its registration was lost in a failover. */
  refused(token: string): void {
    if (token !== '' && token === this.#token) this.#lose();
  }

  /**
   * Stops the heartbeat and deregisters: events the relay still owns are free immediately. Fails if the database does not
   * respond.
   */
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
    await deregisterRelay(this.#options.db, this.#options.schema, token);
  }

  async #register(): Promise<void> {
    const { db, schema, relay, leaseMs } = this.#options;
    const sentAt = performance.now();
    this.#registering = registerRelay(db, schema, { ...relay, leaseMs });
    this.#token = await this.#registering;
    this.#renewed(sentAt);
    this.#options.onRegistered(this.#token);
  }

  #renewed(sentAt: number): void {
    if (sentAt - this.#renewedAt > this.#options.leaseMs * safeShare) this.#inTouchSince = sentAt;
    this.#renewedAt = sentAt;
    clearTimeout(this.#overdue);
    const leftMs = sentAt + this.#options.leaseMs * safeShare - performance.now();
    this.#overdue = setTimeout(() => this.#options.onOverdue(), leftMs).unref();
  }

  #schedule(afterMs: number): void {
    if (this.#state === 'stopped') return;
    this.#timer = setTimeout(() => {
      this.#beating = this.#beat().then((inTouch) => {
        this.#beating = undefined;
        this.#schedule(this.#options.leaseMs * (inTouch ? beatShare : beatAgainShare));
      });
    }, afterMs);
  }

  /** Returns whether the database was reached. */
  async #beat(): Promise<boolean> {
    const { db, schema, leaseMs } = this.#options;
    const token = this.#token;
    const sentAt = performance.now();
    try {
      if (token !== '') {
        const alive = await renewLease(db, schema, token, leaseMs, this.#options.stats());
        if (token !== this.#token) return true;
        if (alive) this.#renewed(sentAt);
        else this.#lose();
      }
      await this.#readClock();
      // A relay that has just started has seen no outage; takeOver() itself declares no relay lost while the server is young.
      if (performance.now() - this.#inTouchSince >= leaseMs || this.#inTouchSince === this.#startedAt) {
        await this.#takeOver(0);
      }
      await this.#options.onBeat();
      return true;
    } catch (error) {
      this.#log.say('beat', (suppressed) =>
        this.#options.logger.warn({ suppressed, err: String(error) }, 'heartbeat failed, retrying'),
      );
      return false;
    }
  }

  /** Reads the database's clock, and corrects leases if it was set. */
  async #readClock(): Promise<void> {
    const { db, schema, leaseMs, logger } = this.#options;
    const askedAt = performance.now();
    const readMs = await correctFutureTimes(db, schema);
    const aheadMs = readMs - this.#clockMsMax();
    this.#clock = { readMs, askedAt };
    if (aheadMs <= 0) return;
    this.#inTouchSince = performance.now();
    logger.warn(
      { aheadMs: Math.round(aheadMs + leaseMs * clockShare) },
      'database clock was set forward, declaring no relay lost for one lease',
    );
  }

  /** The latest time that the database's clock can show now, unless it was set forward. */
  #clockMsMax(): number {
    if (this.#clock === undefined) return Number.MAX_SAFE_INTEGER;
    return this.#clock.readMs + (performance.now() - this.#clock.askedAt) + this.#options.leaseMs * clockShare;
  }

  /** Takes over from relays whose lease expired this long ago. */
  async #takeOver(overdueMs: number): Promise<void> {
    const { db, schema, leaseMs } = this.#options;
    const lost = await takeOver(db, schema, {
      ownToken: this.#token || '0',
      serverUpMs: leaseMs,
      overdueMs,
      inTouch: performance.now() - this.#inTouchSince >= leaseMs,
      clockMsMax: this.#clockMsMax(),
    });
    for (const relay of lost) this.#options.onTakeover(relay);
  }

  #lose(): void {
    const token = this.#token;
    this.#token = '';
    void this.#registerAgain(token);
  }

  async #registerAgain(lostToken: string): Promise<void> {
    await this.#options.onLost(lostToken);
    while (this.#state === 'running' && !this.#options.isStopping()) {
      try {
        await this.#register();
        return;
      } catch {
        await sleep(registerAgainMs);
      }
    }
  }
}
