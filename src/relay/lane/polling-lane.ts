import { setTimeout as sleep } from 'node:timers/promises';
import { codedDatabaseError, isUnreadable } from '../../database/database-error.ts';
import { NoAnswerError, type ReconnectingClient } from '../../database/reconnecting-client.ts';
import type { ClaimedRow, ClaimRequest, ClaimResult } from '../../outbox/delivering/claim.ts';
import { claim, claimNext, isRelayEnded, readClaimed } from '../../outbox/delivering/claim.ts';
import { defer } from '../../outbox/delivering/defer.ts';
import { inlineBytesMax } from '../../outbox/delivering/load-payload.ts';
import type { Logger } from '../../telemetry/logging.ts';
import { SparseLog } from '../../telemetry/logging.ts';
import type { Doorbell } from '../wake/doorbell.ts';
import { LowWater } from './low-water.ts';
import { QueueWalk } from './queue-walk.ts';

export interface PollingLaneOptions {
  schema: string;
  link: ReconnectingClient;
  doorbell: Doorbell;
  /** Events per claim. */
  batchSizeMax: number;
  logger: Logger;
  /** The fencing token; `undefined` while there is no valid lease, and then nothing is claimed. */
  token: () => string | undefined;
  /** How many events the relay should hold at most, and how many it holds. */
  bufferTarget: () => number;
  buffered: () => number;
  /** The length of the text that it holds, and how long that may be. */
  bufferedBytes: () => number;
  bufferedBytesMax: number;
  /** Keys to leave alone: those with enough work in hand, and those of which something is just being given back. */
  excludedKeys: () => readonly string[] | Promise<readonly string[]>;
  /** Only gives back what keys hold beyond their share. */
  releaseExcess: () => void;
  /** The seqs of all events that the relay holds. */
  claimedSeqs: () => string[];
  /** How many suspects the relay may claim now (see suspicion.ts). */
  suspectMax: () => number;
  /** A claim was refused: the relay of this token has ended, or the database does not know it. */
  onEnded: (token: string) => void;
  /** What events may be owed to for this relay to take them. */
  targets: () => readonly string[];
  /** Takes over what a claim brought. Called for every claim, also an empty one. */
  onClaimed: (rows: ClaimedRow[], claimNumber: number, token: string) => void;
}

/** The share of a claim for waiting events that are due, while there are ready ones too. */
const dueShare = 0.25;
/** Nothing of the events comes with the claim. */
const nothingInline = -1;
/** How long events are read one by one after a claim that the database did not answer in time. */
const oneByOneForMs = 60_000;
/** How long no single event is expected after something else was found. */
const notOneForMs = { more: 20, raced: 0, other: 500 };

type LaneRequest = Pick<ClaimRequest, 'token' | 'floor' | 'ownShards' | 'readyMax' | 'dueMax' | 'exceptKeys'>;

/**
 * Brings events from the queue by claiming them, again and again while there is room for more. `QueueWalk` decides where
 * to look.
 */
export class PollingLane {
  readonly #options: PollingLaneOptions;
  readonly #log = new SparseLog();
  #running: Promise<void> | undefined;
  #stopped = false;
  #claimNumber = 0;
  readonly #walk = new QueueWalk(performance.now());
  readonly #lowWater = new LowWater();
  #connections = 0;
  #token = '';
  /** Whether the answer of a claim was lost, so that the relay may own events it does not know of (see claim.ts). */
  #answerLost = false;
  /** Whether the last claim may have left ready, or due, events behind. */
  #readySeen = false;
  #dueSeen = false;
  #notOneUntil = Number.NEGATIVE_INFINITY;
  /** Until then a claim reads no payload, because payloads may be why an earlier one was not answered. */
  #oneByOneUntil = Number.NEGATIVE_INFINITY;
  /** Whether the next claim is to sample the low-water mark, because the last one should have. */
  #sampleOwed = false;
  #roomMade: (() => void) | undefined;

  constructor(options: PollingLaneOptions) {
    this.#options = options;
  }

  /** The number of the last claim sent. */
  get lastClaim(): number {
    return this.#claimNumber;
  }

  start(): void {
    this.#stopped = false;
    this.#running ??= this.#run();
  }

  /** Claims nothing more. Resolves when a claim under way has been answered and handed over. */
  async stop(): Promise<void> {
    this.#stopped = true;
    this.#roomMade?.();
    this.#options.doorbell.ring();
    await this.#running;
    this.#running = undefined;
  }

  /** To be called when the relay holds less than before. */
  roomMade(): void {
    this.#roomMade?.();
  }

  /**
   * One claim. `exhausted`: nothing more can be claimed now. `pauseMs`: when to claim again, at the latest, if nothing
   * rings; 0 for at once.
   */
  async claimOnce(): Promise<{ claimed: number; exhausted: boolean; pauseMs: number | undefined }> {
    const token = this.#options.token();
    const limits = this.#limits();
    if (token === undefined || limits === undefined) return { claimed: 0, exhausted: true, pauseMs: undefined };
    const excluded = this.#options.excludedKeys();
    const exceptKeys = excluded instanceof Promise ? await excluded : excluded;
    this.#noticeChange(token);
    const { dueMax } = limits;
    const look = this.#walk.next(performance.now(), limits.readyMax);
    const claimNumber = ++this.#claimNumber;
    const result = await this.#claim({ token, ...look, dueMax, exceptKeys });
    if (result.reached !== undefined) this.#lowWater.seen(result.reached, result.rows.length);
    if (result.survey) this.#lowWater.sampled(result.survey);
    this.#options.onClaimed(result.rows, claimNumber, token);
    if (result.blocked.length > 0) await defer(this.#options.link, this.#options.schema, result.blocked);
    const atEnd = look.readyMax > 0 ? result.examined < look.readyMax : !this.#readySeen;
    const { reached, relays } = result;
    const claimed = result.rows.length;
    const found = this.#walk.found(look, { reached, atEnd, claimed, relays }, performance.now());
    this.#readySeen = !atEnd;
    if (dueMax > 0) this.#dueSeen = result.dueExamined === dueMax;
    const isQuiet = !this.#dueSeen && !this.#sampleOwed && result.newSuspects === 0;
    const mayPause = isQuiet && (found.exhausted || found.pauseMs !== undefined);
    const pauseMs = Math.min(result.dueInMs ?? Number.POSITIVE_INFINITY, found.pauseMs ?? Number.POSITIVE_INFINITY);
    return { claimed, exhausted: found.exhausted && isQuiet, pauseMs: mayPause ? pauseMs : 0 };
  }

  async #claim(request: LaneRequest): Promise<ClaimResult> {
    if (performance.now() < this.#oneByOneUntil) return this.#claimOneByOne(request);
    try {
      return await this.#claimInline(request, inlineBytesMax);
    } catch (error) {
      if (isRelayEnded(error)) this.#options.onEnded(request.token);
      if (error instanceof NoAnswerError) this.#oneByOneUntil = performance.now() + oneByOneForMs;
      if (!isUnreadable(error)) throw error;
      // One event of the batch cannot be read, and nothing was claimed. Read one by one, only that one fails.
      this.#log.say('unreadable', (suppressed) =>
        this.#options.logger.warn(
          { suppressed, err: String(error) },
          'claim met an unreadable event, reading one by one',
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
      if (isRelayEnded(error)) this.#options.onEnded(request.token);
      throw error;
    }
  }

  async #readClaimed(rows: ClaimedRow[]): Promise<void> {
    try {
      await readClaimed(this.#options.link.queryArrays, this.#options.schema, rows);
    } catch (error) {
      this.#answerLost = true; // Claimed in the database, unknown to this relay.
      throw error;
    }
  }

  async #claimInline(request: LaneRequest, inlineBytesMax: number): Promise<ClaimResult> {
    const { link, schema } = this.#options;
    const now = performance.now();
    const holding = this.#answerLost ? this.#options.claimedSeqs() : undefined;
    const targets = this.#options.targets();
    const sampleIsDue = request.floor === '0' && this.#lowWater.sampleIsDue(now);
    try {
      if (this.#mayBeOne(request, now)) {
        const lowWater = this.#lowWater.mark;
        const one = { ...request, inlineBytesMax, holding, lowWater, targets };
        const next = await claimNext(link.queryArrays, schema, one);
        // Sampling the low-water mark is slow when it is rare: it is left to the next claim, so that no event waits for it.
        this.#sampleOwed = sampleIsDue && typeof next === 'object';
        if (typeof next === 'object') return next;
        // A stream, or what it does not know of, say an outage, may last: asking it in vain costs a round trip.
        this.#notOneUntil = now + notOneForMs[next];
      }
      this.#sampleOwed = false;
      if (sampleIsDue) this.#lowWater.beginSample(now);
      const lowWater = this.#lowWater.mark;
      const suspectMax = this.#options.suspectMax();
      const common = { ...request, inlineBytesMax, holding, lowWater, targets };
      return await claim(link.queryArrays, schema, { ...common, survey: sampleIsDue, suspectMax });
    } catch (error) {
      if (!isUnreadable(error)) this.#answerLost = true;
      throw error;
    }
  }

  /** Whether this is a look after a ring that one event may have caused, and nothing else is to be done with it. */
  #mayBeOne({ readyMax }: Pick<ClaimRequest, 'readyMax'>, now: number): boolean {
    const isWalking = this.#walk.isWalking || this.#readySeen || this.#dueSeen;
    return !isWalking && readyMax > 1 && !this.#sampleOwed && now >= this.#notOneUntil;
  }

  /** How many ready and waiting events to claim: together never more than there is room for. */
  #limits(): { readyMax: number; dueMax: number } | undefined {
    const total = Math.min(this.#options.batchSizeMax, this.#room());
    if (total < 1) return undefined;
    if (total === 1) return this.#claimNumber % 2 === 0 ? { readyMax: 1, dueMax: 0 } : { readyMax: 0, dueMax: 1 };
    let dueMax = 1;
    if (this.#dueSeen) dueMax = this.#readySeen ? Math.ceil(total * dueShare) : total - 1;
    return { readyMax: total - dueMax, dueMax };
  }

  #noticeChange(token: string): void {
    const { connections } = this.#options.link;
    if (connections === this.#connections && token === this.#token) return;
    // What was claimed on another server, which knew more or less than this one, is not what the queue says now.
    if (this.#connections > 0 && connections !== this.#connections) this.#answerLost = true;
    this.#connections = connections;
    this.#token = token;
    this.#lowWater.forget();
    this.#walk.reset();
  }

  async #run(): Promise<void> {
    let failures = 0;
    while (!this.#stopped) {
      try {
        if (!this.#hasRoom()) {
          await this.#waitForRoom();
          if (this.#room() < 1) continue;
        }
        const { claimed, pauseMs } = await this.claimOnce();
        failures = 0;
        if (claimed > 0) this.#options.doorbell.busy(claimed);
        if (pauseMs !== 0 && !this.#stopped) await this.#options.doorbell.wait(pauseMs);
      } catch (error) {
        failures++;
        this.#log.say('claim', (suppressed) =>
          this.#options.logger.warn({ suppressed, err: String(codedDatabaseError(error)) }, 'claim failed, trying on'),
        );
        if (!this.#stopped) await sleep(Math.min(1_000, 20 * 2 ** Math.min(failures, 6)));
      }
    }
  }

  /** How many more events the relay may hold: each may bring as much text as comes with a claim. */
  #room(): number {
    const { bufferTarget, buffered, bufferedBytes, bufferedBytesMax } = this.#options;
    return Math.min(bufferTarget() - buffered(), Math.floor((bufferedBytesMax - bufferedBytes()) / inlineBytesMax));
  }

  /** Whether half a batch fits. */
  #hasRoom(): boolean {
    const { batchSizeMax, bufferedBytesMax, bufferTarget } = this.#options;
    return this.#room() >= Math.min(batchSizeMax, bufferTarget(), bufferedBytesMax / inlineBytesMax) / 2;
  }

  /** Until half a batch fits, or a moment has passed: slow keys are judged by time, and may leave little room. */
  #waitForRoom(): Promise<void> {
    return new Promise((resolve) => {
      const done = () => {
        if (!this.#stopped && !this.#hasRoom()) return;
        clearTimeout(timer);
        this.#roomMade = undefined;
        resolve();
      };
      const timer = setTimeout(() => {
        this.#options.releaseExcess();
        this.#roomMade = undefined;
        resolve();
      }, 50);
      this.#roomMade = done;
    });
  }
}
