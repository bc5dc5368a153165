import type { ServerList } from '../../database/connection-string.ts';
import { ReconnectingClient } from '../../database/reconnecting-client.ts';
import { correctFutureTimes } from '../../outbox/delivering/correct-future-times.ts';
import type { LostRelay } from '../../outbox/delivering/declare-relays-lost.ts';
import { declareRelaysLost } from '../../outbox/delivering/declare-relays-lost.ts';
import { holdRelayLock } from '../../outbox/delivering/hold-relay-lock.ts';
import { probeRelays } from '../../outbox/delivering/probe-relays.ts';
import { renewLease } from '../../outbox/delivering/renew-lease.ts';
import { errorText } from '../../telemetry/error-text.ts';
import type { Logger } from '../../telemetry/logging.ts';
import { SparseLog } from '../../telemetry/logging.ts';
import type { Service } from '../service/service.ts';
import { isProcessGone } from './host-process.ts';
import type { LeaseState } from './lease-state.ts';
import { monotonicMs } from './lease-state.ts';
import { LostRelayDetector } from './lost-relay-detector.ts';
import {
  beatAgainShare,
  beatShare,
  clockShare,
  connectMs,
  lockAgainMs,
  probeMs,
  reconnectMs,
  safeShare,
} from './tuning.ts';

/** A relay's registration. */
export interface Registration {
  /** Counts the registrations of this process, from 1. */
  number: number;
  token: string;
  /** When the statement was sent. */
  sentAt: number;
}

export interface HeartbeatOptions {
  servers: ServerList;
  schema: string;
  /** The relay's name, shown in pg_stat_activity. */
  name: string;
  leaseMs: number;
  /** Whether the relay may hold a session lock. `false` behind a transaction pooler. */
  sessionLock: boolean;
  hostId: string | undefined;
  logger: Logger;
  leaseState: LeaseState;
  /** What the relay reports with each renewal. */
  stats: () => unknown;
  /** Whether the relay's event loop is blocked: then the relay must not count as alive. Default: it is not. */
  isBlocked?: () => boolean;
  /** The event loop hangs, so that what goes to `logger` is not logged before it moves again. */
  onBlocked?: (fields: object, message: string) => void;
  /** Another relay declared this one lost, and may have taken over. */
  onLost: (token: string) => void;
  onRelayLost: (lost: LostRelay) => void;
  onDisconnected: (error: unknown) => void;
}

/** A statement without an answer for this long has lost its connection: in time for another try before the lease ends. */
const queryTimeoutMs = (leaseMs: number) => Math.min(15_000, Math.max(500, leaseMs / 3));

/**
 * Keeps a registered relay alive, on a connection of its own, and declares relays lost that have ended. It shows in two ways
 * that the relay is alive:
 *
 * - The **session lock**, an advisory lock that is free as soon as the relay's process or connection ends. Relays test each
 *   other's locks every 300 ms; one that stays free for 2.4 s declares its relay lost. A relay that loses its connection starts no
 *   delivery until it holds the lock again.
 * - The **lease**, a time in the relay's row, renewed three times per lease. It is the floor: for a frozen process or
 *   host, which keeps its connection, and for relays behind a pooler, which have no session of their own.
 *
 * A relay on the same host whose process is gone is declared lost at once: after a crash, the restarted relay
 * continues with its predecessor's events.
 *
 * After an outage of the database all leases have expired and all locks are free, and the first relays to reconnect would
 * declare the others lost. So a relay judges leases only when it has been in touch with the database for a whole lease, and
 * locks only when the server, and its own connection after a lost one, are older than 10 s.
 *
 * Leases are times of the database's clock, and that clock may be set. This process's clock measures how far it should have
 * moved between two heartbeats. Set forward by more than a third of a lease, every lease looks expired: no relay is declared
 * lost for one lease, in which live relays renew. Set back, leases would expire only when it has caught up: `correctFutureTimes` moves
 * them with it. For how long a lock was free is measured by this process's clock only.
 */
export class Heartbeat implements Service {
  readonly #options: HeartbeatOptions;
  readonly #db: ReconnectingClient;
  readonly #log = new SparseLog();
  readonly #lostRelays = new LostRelayDetector();
  #registration: Registration | undefined;
  #isLocked = false;
  /** Whether statements of the connection were seen to run in different sessions. */
  #isShared = false;
  #lockAgainAt = 0;
  #wasBlocked = false;
  /** The connection that the last turn used. */
  #connection = 0;
  #beatAt = 0;
  #renewedAt = 0;
  /** Since when every renewal succeeded in time. */
  #inTouchSince = 0;
  #startedAt = 0;
  /** The database's clock, and when it was read. */
  #clock: { readMs: number; askedAt: number } | undefined;
  #timer: NodeJS.Timeout | undefined;
  #turn: Promise<void> = Promise.resolve();
  #starting: Promise<void> | undefined;
  #stopped = false;

  constructor(options: HeartbeatOptions) {
    this.#options = options;
    this.#db = new ReconnectingClient({
      ...options,
      applicationName: `postcommit heartbeat ${options.name}`.slice(0, 63),
      queryTimeoutMs: queryTimeoutMs(options.leaseMs),
      connectTimeoutMs: connectMs,
      reconnectDelayMs: reconnectMs,
      onLost: (error) => this.#disconnected(error),
    });
  }

  /** Connects. Fails when that fails. */
  start(): Promise<void> {
    this.#starting ??= this.#stopped ? Promise.resolve() : this.#open();
    return this.#starting;
  }

  async #open(): Promise<void> {
    await this.#db.open();
    this.#options.leaseState.connected = this.#db.connected;
  }

  /** Keeps this registration alive from now on. Settles as the first round does; after a failure it continues to try. */
  async keepAlive(registration: Registration): Promise<void> {
    this.#registration = registration;
    this.#isLocked = false;
    this.#lockAgainAt = 0;
    this.#renewed(registration.sentAt);
    this.#beatAt = registration.sentAt + this.#options.leaseMs * beatShare;
    const isFirst = this.#startedAt === 0;
    if (isFirst) this.#startedAt = this.#inTouchSince;
    try {
      await this.#next(async () => {
        // Immediately, not only with the first renewal: a relay that runs once may end before that.
        if (isFirst) {
          await this.#readClock();
          await this.#declareRelaysLost(this.#options.leaseMs);
        }
        await this.#round();
      });
    } finally {
      this.#scheduleNext();
    }
  }

  /** The registration has ended. */
  drop(): void {
    this.#registration = undefined;
    this.#isLocked = false;
    this.#options.leaseState.suspended();
  }

  async stop(): Promise<void> {
    this.#stopped = true;
    clearTimeout(this.#timer);
    this.drop();
    this.#options.leaseState.connected = false;
    await this.#db.close();
    await this.#starting?.catch(() => {});
    await this.#turn.catch(() => {});
    clearTimeout(this.#timer);
  }

  /** Runs after the turn that is in progress. */
  #next(work: () => Promise<void>): Promise<void> {
    const turn = this.#turn.catch(() => {}).then(work);
    this.#turn = turn;
    return turn;
  }

  #schedule(afterMs: number): void {
    clearTimeout(this.#timer);
    if (this.#stopped) return;
    this.#timer = setTimeout(() => void this.#next(() => this.#tryRound()), afterMs);
  }

  #scheduleNext(): void {
    const now = monotonicMs();
    this.#schedule(Math.max(0, Math.min(this.#lostRelays.nextInMs(now), this.#beatAt - now)));
  }

  async #tryRound(): Promise<void> {
    try {
      await this.#round();
      this.#scheduleNext();
    } catch (error) {
      if (this.#stopped) return;
      this.#log.say('beat', (suppressed) =>
        this.#options.logger.warn({ suppressed, error: errorText(error) }, 'heartbeat failed, retrying'),
      );
      // Without a connection the next round waits for one.
      this.#schedule(this.#db.connected ? Math.min(probeMs, this.#options.leaseMs * beatAgainShare) : 0);
    }
  }

  async #round(): Promise<void> {
    if (this.#stopped || this.#isBlocked()) return;
    await this.#db.whenConnected();
    this.#options.leaseState.connected = this.#db.connected;
    if (this.#connection !== this.#db.connections) {
      if (this.#connection > 0) this.#lostRelays.reconnected(monotonicMs());
      this.#connection = this.#db.connections;
      this.#lockAgainAt = 0;
    }
    await this.#lock();
    if (monotonicMs() >= this.#beatAt) await this.#beat();
    await this.#probe();
  }

  /** While the event loop is blocked, the relay neither renews its lease nor holds its lock. */
  #isBlocked(): boolean {
    const isBlocked = this.#options.isBlocked?.() ?? false;
    if (isBlocked && !this.#wasBlocked) {
      const { name: relay, leaseState, logger, onBlocked } = this.#options;
      leaseState.suspended();
      const fields = { relay, blockedMs: Math.round(monotonicMs() - leaseState.movedAt) };
      const message = 'event loop blocked, gave up the lease; another relay delivers its events';
      logger.error(fields, message);
      onBlocked?.(fields, message);
      this.#db.disconnect(new Error('the event loop is blocked')); // Frees the lock.
    }
    this.#wasBlocked = isBlocked;
    return isBlocked;
  }

  get #canLock(): boolean {
    return this.#options.sessionLock && !this.#isShared && this.#db.sessionPid !== undefined;
  }

  async #lock(): Promise<void> {
    const registration = this.#registration;
    if (registration === undefined || this.#isLocked || monotonicMs() < this.#lockAgainAt) return;
    if (!this.#canLock) {
      this.#options.leaseState.leased(registration.number);
      return;
    }
    const sentAt = monotonicMs();
    const connection = this.#db.connections;
    const isLocked = await holdRelayLock(this.#db, this.#options.schema, registration.token);
    if (registration !== this.#registration || connection !== this.#db.connections) return;
    if (isLocked === undefined) {
      this.#lose(registration);
      return;
    }
    this.#isLocked = isLocked;
    this.#lockAgainAt = sentAt + lockAgainMs;
    if (isLocked) this.#options.leaseState.locked(registration.number, sentAt);
    else this.#options.leaseState.leased(registration.number);
  }

  /** Renews the lease, and declares relays lost whose lease has expired. */
  async #beat(): Promise<void> {
    const { schema, leaseMs, stats } = this.#options;
    const registration = this.#registration;
    const sentAt = monotonicMs();
    if (registration !== undefined) {
      const alive = await renewLease(this.#db, schema, registration.token, leaseMs, stats(), this.#canLock);
      if (registration === this.#registration) {
        if (alive) this.#renewed(sentAt);
        else this.#lose(registration);
      }
    }
    await this.#readClock();
    // A relay that has just started has seen no outage; declareRelaysLost() itself declares no relay lost while the server is young.
    if (monotonicMs() - this.#inTouchSince >= leaseMs || this.#inTouchSince === this.#startedAt)
      await this.#declareRelaysLost(0);
    this.#beatAt = sentAt + leaseMs * beatShare;
  }

  async #probe(): Promise<void> {
    const { schema, hostId, onRelayLost } = this.#options;
    const registration = this.#registration;
    const own = registration?.token ?? '0';
    const connection = this.#db.connections;
    const sentAt = monotonicMs();
    const probed = await probeRelays(this.#db, schema, own, hostId, []);
    if (connection !== this.#db.connections) return;
    if (registration !== undefined && registration === this.#registration) this.#proven(registration, probed, sentAt);
    const lost = new Set(this.#lostRelays.judge(probed, sentAt, monotonicMs()));
    for (const suspect of probed.suspects) if (isProcessGone(suspect, hostId)) lost.add(suspect);
    if (lost.size === 0) return;
    for (const relay of (await probeRelays(this.#db, schema, own, hostId, [...lost])).lost) onRelayLost(relay);
  }

  /** The answer to a probe shows that the session is still there, and with it the lock. */
  #proven(
    registration: Registration,
    { registered, session }: { registered: boolean; session: number },
    sentAt: number,
  ): void {
    if (!registered) {
      this.#lose(registration);
    } else if (this.#isLocked && session === this.#db.sessionPid) {
      this.#options.leaseState.locked(registration.number, sentAt);
    } else if (this.#isLocked) {
      this.#isLocked = false;
      this.#isShared = true;
      this.#beatAt = 0; // The next renewal records that only the lease counts.
      this.#options.leaseState.leased(registration.number);
      this.#options.logger.warn(
        {},
        'connection goes through a transaction pooler, a crash of this relay is detected only when its lease ends',
      );
    }
  }

  #renewed(sentAt: number): void {
    if (sentAt - this.#renewedAt > this.#options.leaseMs * safeShare) this.#inTouchSince = sentAt;
    this.#renewedAt = sentAt;
    this.#options.leaseState.renewed(sentAt);
  }

  /** Reads the database's clock, and corrects leases if it was set. */
  async #readClock(): Promise<void> {
    const { schema, leaseMs, logger } = this.#options;
    const askedAt = monotonicMs();
    const readMs = await correctFutureTimes(this.#db, schema);
    const aheadMs = readMs - this.#clockMsMax();
    this.#clock = { readMs, askedAt };
    if (aheadMs <= 0) return;
    this.#inTouchSince = monotonicMs();
    logger.warn(
      { aheadMs: Math.round(aheadMs + leaseMs * clockShare) },
      'database clock was set forward, declaring no relay lost for one lease',
    );
  }

  /** The latest time that the database's clock can show now, unless it was set forward. */
  #clockMsMax(): number {
    if (this.#clock === undefined) return Number.MAX_SAFE_INTEGER;
    return this.#clock.readMs + (monotonicMs() - this.#clock.askedAt) + this.#options.leaseMs * clockShare;
  }

  /** Declares relays lost whose lease expired this long ago. */
  async #declareRelaysLost(overdueMs: number): Promise<void> {
    const { schema, leaseMs, onRelayLost } = this.#options;
    const lost = await declareRelaysLost(this.#db, schema, {
      ownToken: this.#registration?.token ?? '0',
      serverUpMs: leaseMs,
      overdueMs,
      inTouch: monotonicMs() - this.#inTouchSince >= leaseMs,
      clockMsMax: this.#clockMsMax(),
    });
    for (const relay of lost) onRelayLost(relay);
  }

  #lose(registration: Registration): void {
    this.drop();
    this.#options.onLost(registration.token);
  }

  #disconnected(error: unknown): void {
    // Other relays may find the lock free. A relay that has only its lease keeps that.
    if (this.#isLocked) this.#options.leaseState.suspended();
    this.#isLocked = false;
    this.#options.leaseState.connected = false;
    this.#options.onDisconnected(error);
    this.#db.ensure();
    this.#schedule(0);
  }
}
