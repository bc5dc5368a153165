import { setTimeout as sleep } from 'node:timers/promises';
import { codedDatabaseError, isConnectionFailure, isUnreadable, sqlState } from '../../database/database-error.ts';
import { NoAnswerError, type ReconnectingClient } from '../../database/reconnecting-client.ts';
import type { ClaimedRow, ClaimRequest, ClaimResult } from '../../outbox/delivering/claim.ts';
import { claim, claimNext, isRelayEnded, readClaimed } from '../../outbox/delivering/claim.ts';
import { defer } from '../../outbox/delivering/defer.ts';
import { inlineBytesMax } from '../../outbox/delivering/load-payload.ts';
import { errorText } from '../../telemetry/error-text.ts';
import type { Logger } from '../../telemetry/logging.ts';
import { SparseLog } from '../../telemetry/logging.ts';
import type { Dispatcher } from '../dispatch/dispatcher.ts';
import type { ClaimedEvent } from '../event/claimed-event.ts';
import { isSuspect } from '../event/suspicion.ts';
import { StateMachine } from '../service/state-machine.ts';
import type { SettleEntry } from '../settle/transition.ts';
import { delayOf } from '../settle/transition.ts';
import type { QueueBell } from '../wake/queue-bell.ts';
import type { ClaimHistory } from './claim-history.ts';
import type { ClaimTurn } from './claim-turn.ts';
import type { EventBuffer } from './event-buffer.ts';
import type { ClaimReport, Lane } from './lane.ts';
import type { Look } from './queue-walk.ts';
import { QueueWalk } from './queue-walk.ts';
import type { SlowKeys } from './slow-keys.ts';
import {
  blockedRetryMs,
  claimRetryMsMax,
  dueShare,
  examineAllAfterMs,
  notOneForMs,
  oneByOneForMs,
  roomCheckMs,
} from './tuning.ts';

export interface PollingLaneOptions {
  schema: string;
  /** The named queue that it claims from. */
  queue: string;
  db: Pick<ReconnectingClient, 'query' | 'queryArrays' | 'connections' | 'sessionPid'>;
  doorbell: Pick<QueueBell, 'ring' | 'ringIn' | 'busy' | 'wait'>;
  /** Shared by all lanes of the relay. */
  turn: ClaimTurn;
  /** Events per claim. */
  batchSizeMax: number;
  logger: Logger;
  buffer: EventBuffer;
  history: ClaimHistory;
  slowKeys: Pick<SlowKeys, 'excludedKeys' | 'wantsMore' | 'failed' | 'recovered' | 'undeferAll'>;
  dispatcher: Pick<Dispatcher, 'accept' | 'releaseExcess'>;
  /** The fencing token; `undefined` while there is no valid lease, and then nothing is claimed. */
  token: () => string | undefined;
  /** Every seq that the relay has claimed, in any lane. */
  knownSeqs: () => string[];
  /** Whether the server is known to have what the relay has claimed. Waits for a connection. Default: it is. */
  mayClaim?: (token: string) => Promise<boolean>;
  /** Whether the relay still has this token. */
  isCurrent: (token: string) => boolean;
  /** This relay claims an owed event only if it owes one of these targets. */
  targets: () => readonly string[];
  onClaimed: (queue: string, rows: readonly ClaimedRow[], tookMs: number) => void;
  /** A key may continue: events of other queues may be claimed now. `wantsMore`: the relay has too few of the key. */
  onKeyFreed: (wantsMore: boolean) => void;
  /** A claim was refused: the relay of this token has ended, or the database does not know it. */
  onRefused: (token: string) => void;
}

/** The claim returns only seqs. */
const nothingInline = -1;

type LaneRequest = Pick<ClaimRequest, 'token' | 'queue' | 'floor' | 'ownShards' | 'readyMax' | 'dueMax' | 'exceptKeys'>;

/** `idle` even while a relay that runs once calls `claimOnce()`. */
type LaneState = 'idle' | 'claiming' | 'waiting' | 'full' | 'retrying' | 'stopped';

/**
 * Claims events from one named queue repeatedly while there is room for more. `QueueWalk` decides where to claim.
 *
 * States: `idle` until it is started; `claiming`; `waiting` for the doorbell when nothing is left to claim; `full` when the
 * buffer has no room; `retrying` when a claim failed; `stopped` for good.
 */
export class PollingLane implements Lane {
  readonly #options: PollingLaneOptions;
  readonly #log = new SparseLog();
  readonly #state = new StateMachine<LaneState>('polling lane', 'idle', {
    idle: ['claiming', 'full', 'stopped'],
    claiming: ['waiting', 'full', 'retrying', 'stopped'],
    waiting: ['claiming', 'full', 'stopped'],
    full: ['claiming', 'retrying', 'stopped'],
    retrying: ['claiming', 'full', 'stopped'],
    stopped: [],
  });
  #running: Promise<void> | undefined;
  readonly #walk = new QueueWalk(performance.now());
  #connections = 0;
  /** The server process of that connection, if it is known. */
  #sessionPid: number | undefined;
  #token = '';
  /** Whether the last claim found all of a short backlog, and some of it could not be claimed yet. */
  #isBlocked = false;
  /** Whether the last claim may have left ready, or due, events behind. */
  #readySeen = false;
  #dueSeen = false;
  /** With room for one event, ready and waiting ones are claimed in turn. */
  #isDueTurn = false;
  /** Whether the last claim was for one of these kinds, found none, and the other kind is next. */
  #otherIsNext = false;
  #notOneUntil = Number.NEGATIVE_INFINITY;
  /** When to examine everything at the latest. Until then the claim after a notification is for the one event alone. */
  #examineAllAt = Number.POSITIVE_INFINITY;
  /** Until then a claim reads no payload, because payloads may be why an earlier one timed out. */
  #oneByOneUntil = Number.NEGATIVE_INFINITY;
  /** Whether the next claim samples the low-water mark, because the last one should have. */
  #sampleOwed = false;
  #onRoom: (() => void) | undefined;

  constructor(options: PollingLaneOptions) {
    this.#options = options;
  }

  async start(): Promise<void> {
    if (!this.#state.is('stopped')) this.#running ??= this.#run();
  }

  /** Claims nothing more. Resolves when a claim in flight has returned and its events were passed on. */
  async stop(): Promise<void> {
    this.#state.to('stopped');
    this.#onRoom?.();
    this.#options.doorbell.ring();
    await this.#running;
  }

  /** Makes deferred events ready, for the other relays. */
  undeferAll(): Promise<void> {
    return this.#options.slowKeys.undeferAll();
  }

  forget(): void {
    this.#options.buffer.clear();
    this.#options.history.clear();
  }

  settled(entry: SettleEntry): void {
    const { buffer, history, slowKeys, doorbell } = this.#options;
    const { event, kind } = entry;
    const { key } = event;
    buffer.delete(event);
    if (isSuspect(event)) doorbell.ring(); // For the next suspect.
    if (kind !== 'delivered') {
      if (key !== null) history.settled(key, kind === 'unavailable' ? 'shelved' : 'returned');
      // A retry that is due before the next claim, or an event that another relay may claim now.
      if (kind !== 'unavailable') this.#examineAllIn(delayOf(entry) ?? 0);
      if (key !== null && (kind === 'failed' || kind === 'deadLettered')) slowKeys.failed(key);
    } else if (key !== null && event.attempts > 0) {
      slowKeys.recovered(key);
    }
    if (key !== null) {
      const wantsMore = slowKeys.wantsMore(key);
      if (wantsMore) doorbell.ring();
      this.#options.onKeyFreed(wantsMore);
    }
    this.#onRoom?.();
  }

  #examineAllIn(ms: number): void {
    this.#examineAllAt = Math.min(this.#examineAllAt, performance.now() + ms);
    this.#options.doorbell.ringIn(ms);
  }

  /** An event of another queue was claimed or settled: what this lane could not claim may have waited for it. */
  keyFreed(wantsMore: boolean): void {
    if (wantsMore || this.#isBlocked) this.#options.doorbell.ringIn(blockedRetryMs);
  }

  async claimOnce(): Promise<ClaimReport> {
    const made = await this.#options.turn.run(() => this.#claimInTurn());
    if (made === undefined) return { claimed: 0, exhausted: true, pauseMs: undefined };
    const { look, dueMax, result } = made;
    if (result.rows.length > 0) this.#options.onKeyFreed(false);
    if (result.blocked.length > 0) await defer(this.#options.db, this.#options.schema, result.blocked);
    const atEnd = look.readyMax > 0 ? result.examined < look.readyMax : !this.#readySeen;
    const { reached, relays } = result;
    const claimed = result.rows.length;
    this.#isBlocked = look.floor === '0' && atEnd && result.examined + result.dueExamined > claimed;
    const found = this.#walk.found(look, { reached, atEnd, claimed, relays }, performance.now());
    this.#readySeen = !atEnd;
    if (dueMax > 0) this.#dueSeen = result.dueExamined === dueMax;
    const isQuiet = !this.#dueSeen && !this.#sampleOwed && result.newSuspects === 0;
    this.#otherIsNext = !this.#otherIsNext && claimed === 0 && (look.readyMax === 0 || dueMax === 0);
    const mayPause = isQuiet && !this.#otherIsNext && (found.exhausted || found.pauseMs !== undefined);
    const pauseMs = Math.min(result.dueInMs ?? Number.POSITIVE_INFINITY, found.pauseMs ?? Number.POSITIVE_INFINITY);
    return { claimed, exhausted: found.exhausted && isQuiet && !this.#otherIsNext, pauseMs: mayPause ? pauseMs : 0 };
  }

  /** Claims and hands over. `undefined` without a lease or without room, or when the lane was stopped while it waited. */
  async #claimInTurn(): Promise<{ look: Look; dueMax: number; result: ClaimResult } | undefined> {
    const { history, queue, turn } = this.#options;
    const token = this.#options.token();
    const limits = this.#limits();
    if (token === undefined || limits === undefined || this.#state.is('stopped')) return undefined;
    const excluded = this.#options.slowKeys.excludedKeys(queue);
    const slowKeys = excluded instanceof Promise ? await excluded : excluded;
    if ((await this.#options.mayClaim?.(token)) === false || this.#state.is('stopped')) return undefined;
    const exceptKeys = [...slowKeys, ...history.returnedKeys()];
    this.#noticeChange(token);
    await this.#releaseLostClaims();
    const { dueMax } = limits;
    const look = this.#walk.next(performance.now(), limits.readyMax);
    const claimNumber = history.sent();
    const begunAt = performance.now();
    const result = await this.#claim({ token, queue, ...look, dueMax, exceptKeys });
    if (result.reached !== undefined) turn.lowWater.seen(result.reached, result.rows.length);
    if (result.sample) turn.lowWater.sampled(result.sample);
    this.#handOver(result.rows, token, performance.now() - begunAt);
    history.answered(claimNumber);
    return { look, dueMax, result };
  }

  async #releaseLostClaims(): Promise<void> {
    const { db, schema, turn, knownSeqs, logger } = this.#options;
    const events = await turn.lostClaims.release(db, schema, knownSeqs);
    if (events > 0) logger.warn({ events }, 'released events of claims whose results were lost');
  }

  /** Events that were claimed under a lease that is lost by now are free for other relays. */
  #handOver(rows: ClaimedRow[], token: string, tookMs: number): void {
    if (rows.length === 0 || !this.#options.isCurrent(token)) return;
    const { buffer, dispatcher, onClaimed, queue } = this.#options;
    onClaimed(queue, rows, tookMs);
    const events = rows as ClaimedEvent[];
    buffer.add(events);
    dispatcher.accept(events);
  }

  async #claim(request: LaneRequest): Promise<ClaimResult> {
    if (performance.now() < this.#oneByOneUntil) return this.#claimOneByOne(request);
    try {
      return await this.#claimInline(request, inlineBytesMax);
    } catch (error) {
      if (isRelayEnded(error)) this.#options.onRefused(request.token);
      if (error instanceof NoAnswerError) this.#oneByOneUntil = performance.now() + oneByOneForMs;
      if (!isUnreadable(error)) throw error;
      // One event of the batch cannot be read, and nothing was claimed. One by one, only that event fails.
      this.#log.say('unreadable', (suppressed) =>
        this.#options.logger.warn(
          { suppressed, error: errorText(error) },
          'claim hit an unreadable event, reading events one by one',
        ),
      );
      return this.#claimOneByOne(request);
    }
  }

  async #claimOneByOne(request: LaneRequest): Promise<ClaimResult> {
    try {
      const result = await this.#claimInline(request, nothingInline);
      await this.#readClaimed(result.rows);
      return result;
    } catch (error) {
      if (isRelayEnded(error)) this.#options.onRefused(request.token);
      throw error;
    }
  }

  async #readClaimed(rows: ClaimedRow[]): Promise<void> {
    try {
      await readClaimed(this.#options.db.queryArrays, this.#options.schema, rows);
    } catch (error) {
      this.#options.turn.lostClaims.committed();
      throw error;
    }
  }

  async #claimInline(request: LaneRequest, inlineBytesMax: number): Promise<ClaimResult> {
    const { db, schema, buffer, turn } = this.#options;
    const { lowWater: mark } = turn;
    const now = performance.now();
    const knownSeqs = turn.lostClaims.arePossible ? this.#options.knownSeqs() : undefined;
    const targets = this.#options.targets();
    const sampleIsDue = request.floor === '0' && mark.sampleIsDue(now);
    try {
      if (this.#mayBeOne(request, now)) {
        const lowWater = mark.mark;
        const quick = knownSeqs === undefined && now < this.#examineAllAt;
        const one = { ...request, inlineBytesMax, knownSeqs, lowWater, targets, quick };
        const next = await claimNext(db.queryArrays, schema, one);
        // Sampling the low-water mark is slow when it is rare: it is left to the next claim, so that no event waits for it.
        this.#sampleOwed = sampleIsDue && typeof next === 'object';
        if (typeof next === 'object') return this.#examined(next, quick && next.rows.length > 0);
        // A stream, or something that claimNext does not handle, may last: an unsuccessful call costs a round trip.
        this.#notOneUntil = now + notOneForMs[next];
      }
      this.#sampleOwed = false;
      if (sampleIsDue) mark.beginSample(now);
      const lowWater = mark.mark;
      const suspectMax = buffer.suspectRoom;
      const common = { ...request, inlineBytesMax, knownSeqs, lowWater, targets };
      return this.#examined(await claim(db.queryArrays, schema, { ...common, sample: sampleIsDue, suspectMax }), false);
    } catch (error) {
      // After any other error that the server reports, nothing is claimed.
      if (isConnectionFailure(error) || sqlState(error) === undefined) turn.lostClaims.inSession(this.#sessionPid);
      throw error;
    }
  }

  /** Remembers when to examine everything again: a quick claim does not say when the next waiting event is due. */
  #examined(result: ClaimResult, quickly: boolean): ClaimResult {
    const now = performance.now();
    if (quickly) this.#examineAllAt = Math.min(this.#examineAllAt, now + examineAllAfterMs);
    else this.#examineAllAt = now + (result.dueInMs ?? Number.POSITIVE_INFINITY);
    return quickly ? { ...result, dueInMs: Math.max(1, this.#examineAllAt - now) } : result;
  }

  /** Whether a single event may have caused this claim, and the claim has nothing else to do. */
  #mayBeOne({ readyMax }: Pick<ClaimRequest, 'readyMax'>, now: number): boolean {
    const isWalking = this.#walk.isWalking || this.#readySeen || this.#dueSeen;
    return !isWalking && readyMax > 1 && !this.#sampleOwed && now >= this.#notOneUntil;
  }

  /** How many ready and waiting events to claim: together never more than there is room for. */
  #limits(): { readyMax: number; dueMax: number } | undefined {
    const total = Math.min(this.#options.batchSizeMax, this.#options.buffer.room());
    if (total < 1) return undefined;
    if (total === 1) {
      this.#isDueTurn = !this.#isDueTurn;
      return this.#isDueTurn ? { readyMax: 0, dueMax: 1 } : { readyMax: 1, dueMax: 0 };
    }
    let dueMax = 1;
    if (this.#dueSeen) dueMax = this.#readySeen ? Math.ceil(total * dueShare) : total - 1;
    return { readyMax: total - dueMax, dueMax };
  }

  #noticeChange(token: string): void {
    const { connections } = this.#options.db;
    if (connections === this.#connections && token === this.#token) return;
    // The queue of another server may differ from what this relay has claimed.
    const { turn } = this.#options;
    turn.lostClaims.useToken(token);
    const isReconnected = this.#connections > 0 && connections !== this.#connections;
    if (isReconnected && token === this.#token) turn.lostClaims.inSession(this.#sessionPid);
    this.#connections = connections;
    this.#sessionPid = this.#options.db.sessionPid;
    this.#token = token;
    turn.lowWater.forget();
    this.#walk.reset();
  }

  async #run(): Promise<void> {
    const { buffer, doorbell, batchSizeMax, logger } = this.#options;
    let failures = 0;
    while (!this.#state.is('stopped')) {
      try {
        if (!buffer.hasRoom(batchSizeMax)) {
          this.#state.to('full');
          await this.#waitForRoom();
          if (this.#state.is('stopped') || buffer.room() < 1) continue;
        }
        this.#state.to('claiming');
        const { claimed, pauseMs } = await this.claimOnce();
        failures = 0;
        if (claimed > 0) doorbell.busy(claimed);
        if (pauseMs === 0 || this.#state.is('stopped')) continue;
        this.#state.to('waiting');
        await doorbell.wait(pauseMs);
      } catch (error) {
        failures++;
        this.#log.say('claim', (suppressed) =>
          logger.warn({ suppressed, error: errorText(codedDatabaseError(error)) }, 'claim failed, retrying'),
        );
        if (this.#state.is('stopped')) break;
        this.#state.to('retrying');
        await sleep(Math.min(claimRetryMsMax, 20 * 2 ** Math.min(failures, 6)));
      }
    }
  }

  /** Until half a batch fits, or a moment has passed: slow keys are judged by time, and may leave little room. */
  #waitForRoom(): Promise<void> {
    const { buffer, batchSizeMax, dispatcher, queue } = this.#options;
    return new Promise((resolve) => {
      const timer = setTimeout(() => {
        dispatcher.releaseExcess(queue);
        this.#onRoom = undefined;
        resolve();
      }, roomCheckMs);
      this.#onRoom = () => {
        if (!this.#state.is('stopped') && !buffer.hasRoom(batchSizeMax)) return;
        clearTimeout(timer);
        this.#onRoom = undefined;
        resolve();
      };
    });
  }
}
