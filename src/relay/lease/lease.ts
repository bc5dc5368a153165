import type { Executor } from '../../database/executor.ts';
import { reanchor } from '../../outbox/delivering/reanchor.ts';
import type { LostRelay, RelayIdentity } from '../../outbox/delivering/relays.ts';
import { end, reap, register, renew } from '../../outbox/delivering/relays.ts';
import type { Logger } from '../../telemetry/logging.ts';
import { SparseLog } from '../../telemetry/logging.ts';

export interface LeaseOptions {
  schema: string;
  db: Executor;
  relay: RelayIdentity;
  leaseMs: number;
  logger: Logger;
  stats: () => unknown;
  /** Declared lost by another relay, which may have taken over. */
  onLost: (token: string) => void;
  /** Not renewed for almost a lease: from now on another relay may take over at any time. */
  onOverdue: () => void;
  onRescue: (lost: LostRelay) => void;
  /** Runs with each heartbeat, on the same connection. */
  onBeat?: () => Promise<void>;
}

/** The part of a lease during which the relay relies on it. */
const safeShare = 0.9;
/** The part of a lease between two beats, and after one that failed. */
const beatShare = 1 / 3;
const beatAgainShare = 1 / 10;
/** The part of a lease by which the database's clock may run ahead of this process's. It expires no lease that is renewed in time. */
const clockShare = 1 / 3;

/**
 * The relay's claim to be alive: one row, renewed three times per lease, that covers everything the relay holds. A
 * report that takes an hour is not stolen, however long it runs, and a crash is noticed within a lease. With each beat
 * it also declares other relays lost whose lease ran out.
 *
 * The relay judges its own lease by the time since it *sent* the last successful renewal, so it stops before the
 * database would let anyone else take over. And it declares no relay lost while it has not been in touch with the
 * database for a whole lease itself: after an outage of the database all leases have run out, and the relays that come
 * back first would declare the others dead.
 *
 * All leases are times of the database's clock, and that clock may be set. This process's clock measures how far it should have
 * moved between two beats. Set forward by more than a third of a lease, every lease looks expired: no relay is declared lost for
 * a lease, in which the living renew. Set back, leases would end only when it has caught up: `reanchor` moves them with it.
 */
export class Lease {
  readonly #options: LeaseOptions;
  readonly #log = new SparseLog();
  #token = '';
  #renewedAt = 0;
  /** Since when every beat came in time. */
  #inTouchSince = 0;
  #startedAt = 0;
  /** The database's clock, and when it was asked for. */
  #clock: { readMs: number; askedAt: number } | undefined;
  #overdue: NodeJS.Timeout | undefined;
  #timer: NodeJS.Timeout | undefined;
  #beating: Promise<void> | undefined;
  #running = false;

  constructor(options: LeaseOptions) {
    this.#options = options;
  }

  get token(): string {
    return this.#token;
  }

  /** Whether deliveries may still begin under this lease. */
  get valid(): boolean {
    return this.#token !== '' && performance.now() - this.#renewedAt < this.#options.leaseMs * safeShare;
  }

  /** Registers the relay and begins to beat. */
  async begin(): Promise<string> {
    this.#running = true;
    await this.#register();
    this.#startedAt = this.#inTouchSince;
    const { leaseMs } = this.#options;
    // At once, and not with the first beat only: a relay that just runs once may end before that.
    await this.#reanchor();
    await this.#reap(leaseMs);
    this.#schedule(leaseMs * beatShare);
    return this.#token;
  }

  /** The database refused this token: the relay was declared lost, or its registration was lost in a failover. */
  refused(token: string): void {
    if (token !== '' && token === this.#token) this.#lose();
  }

  /** Registers anew after the lease was lost. */
  async renewIdentity(): Promise<string> {
    await this.#register();
    return this.#token;
  }

  /** Stops beating and signs off; what the relay still held is free at once. */
  async end(): Promise<void> {
    this.#running = false;
    clearTimeout(this.#timer);
    clearTimeout(this.#overdue);
    await this.#beating;
    if (this.#token === '') return;
    const token = this.#token;
    this.#token = '';
    await end(this.#options.db, this.#options.schema, token);
  }

  async #register(): Promise<void> {
    const { db, schema, relay, leaseMs } = this.#options;
    const sentAt = performance.now();
    this.#token = await register(db, schema, { ...relay, leaseMs });
    this.#renewed(sentAt);
  }

  #renewed(sentAt: number): void {
    if (sentAt - this.#renewedAt > this.#options.leaseMs * safeShare) this.#inTouchSince = sentAt;
    this.#renewedAt = sentAt;
    clearTimeout(this.#overdue);
    const leftMs = sentAt + this.#options.leaseMs * safeShare - performance.now();
    this.#overdue = setTimeout(() => this.#options.onOverdue(), leftMs).unref();
  }

  #schedule(afterMs: number): void {
    if (!this.#running) return;
    this.#timer = setTimeout(() => {
      this.#beating = this.#beat().then((inTouch) => {
        this.#beating = undefined;
        this.#schedule(this.#options.leaseMs * (inTouch ? beatShare : beatAgainShare));
      });
    }, afterMs);
  }

  /** Answers whether the database was reached. */
  async #beat(): Promise<boolean> {
    const { db, schema, leaseMs } = this.#options;
    const token = this.#token;
    const sentAt = performance.now();
    try {
      if (token !== '') {
        const alive = await renew(db, schema, token, leaseMs, this.#options.stats());
        if (token !== this.#token) return true;
        if (alive) this.#renewed(sentAt);
        else this.#lose();
      }
      await this.#reanchor();
      // A relay that has just started has seen no outage; reap() itself spares everyone while the server is young.
      if (performance.now() - this.#inTouchSince >= leaseMs || this.#inTouchSince === this.#startedAt) {
        await this.#reap(0);
      }
      await this.#options.onBeat?.();
      return true;
    } catch (error) {
      this.#log.say('beat', (suppressed) =>
        this.#options.logger.warn({ suppressed, err: String(error) }, 'heartbeat failed, trying on'),
      );
      return false;
    }
  }

  /** Looks at the database's clock, and makes up for it if it was set. */
  async #reanchor(): Promise<void> {
    const { db, schema, leaseMs, logger } = this.#options;
    const askedAt = performance.now();
    const readMs = await reanchor(db, schema);
    const aheadMs = readMs - this.#clockMsMax();
    this.#clock = { readMs, askedAt };
    if (aheadMs <= 0) return;
    this.#inTouchSince = performance.now();
    logger.warn(
      { aheadMs: Math.round(aheadMs + leaseMs * clockShare) },
      'the database clock was set forward, declaring no relay lost for one lease',
    );
  }

  /** What the database's clock can read now at the latest, unless it was set forward. */
  #clockMsMax(): number {
    if (this.#clock === undefined) return Number.MAX_SAFE_INTEGER;
    return this.#clock.readMs + (performance.now() - this.#clock.askedAt) + this.#options.leaseMs * clockShare;
  }

  /** Declares relays lost whose lease ran out so long ago. */
  async #reap(overdueMs: number): Promise<void> {
    const { db, schema, leaseMs } = this.#options;
    const lost = await reap(db, schema, {
      ownToken: this.#token || '0',
      serverUpMs: leaseMs,
      overdueMs,
      inTouch: performance.now() - this.#inTouchSince >= leaseMs,
      clockMsMax: this.#clockMsMax(),
    });
    for (const relay of lost) this.#options.onRescue(relay);
  }

  #lose(): void {
    const token = this.#token;
    this.#token = '';
    this.#options.onLost(token);
  }
}
