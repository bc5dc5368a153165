import { compareSeq } from '../../outbox/delivering/claim.ts';
import {
  allAfterMs,
  blockedPauseMs,
  blockedPauseMsMax,
  fromStartEveryMs,
  glanceAgainMs,
  glanceBlockedMax,
  glanceEveryMs,
  glanceFromStartMs,
  glanceMax,
  glanceMin,
} from './tuning.ts';

/** Where to claim from. */
export interface Look {
  /** Only above this seq; `'0'` for all. */
  floor: string;
  /** Only in the relay's own shards. */
  ownShards: boolean;
  /** How many ready events to examine at most. */
  readyMax: number;
}

/** What a claim found there. */
export interface LookResult {
  /** The highest seq that was examined. */
  reached: string | undefined;
  /** Whether there was nothing more above it. */
  atEnd: boolean;
  claimed: number;
  /** How many relays divide the shards. */
  relays: number;
}

interface Walk {
  /** The highest seq examined so far. */
  floor: string;
  fromStartAt: number;
  claimed: number;
}

/**
 * Decides where a relay claims next. A backlog is walked from the floor, the highest seq examined so far, so that claims do
 * not re-examine claimed or blocked events. But seq is drawn at insert and visible at commit, leases end, and blocked events
 * become free: so a claim from the start is made four times a second, and when the walk has reached the end. The floor
 * decides when an event is found, never whether.
 *
 * There are two walks: one in the relay's own shards, so that several relays do not examine and lock each other's events, and
 * one through all shards, in small samples (glances), each starting where the last one ended: once a second, and 20 times a
 * second when the relay has run out of its own events. Most of what it finds there is behind events that another relay has
 * claimed. After a glance that found events that no relay works on (their relay may be stuck or dead) a larger one follows soon,
 * and at once if the relay has none of its own. Time is passed in.
 */
export class QueueWalk {
  readonly #own = newWalk();
  readonly #all = newWalk();
  #current = this.#own;
  /** Whether all of the relay's own shards were examined, and nothing is left there. */
  #ownDone = false;
  /** How many relays divide the shards, as of the last claim in its own. */
  #relays = 1;
  #allEndedAt: number;
  /** How much the next glance examines; it grows while most of that can be claimed. */
  #glance = glanceMin;
  #glanceAfterMs = glanceEveryMs;
  #blockedPauseMs = blockedPauseMs;

  constructor(now: number) {
    this.#allEndedAt = now;
  }

  /** Whether a walk is in progress. */
  get isWalking(): boolean {
    return this.#current.floor !== '0';
  }

  /** Starts over: the server may be a different one. */
  reset(): void {
    for (const walk of [this.#own, this.#all]) Object.assign(walk, newWalk());
    this.#current = this.#own;
    this.#ownDone = false;
  }

  /** `readyMax`: how many ready events there is room for. */
  next(now: number, readyMax: number): Look {
    this.#choose(now);
    const walk = this.#current;
    const isGlance = walk === this.#all;
    const fromStartMs = isGlance && !this.#ownDone ? glanceFromStartMs : fromStartEveryMs;
    const fromStart = walk.floor === '0' || now - walk.fromStartAt >= fromStartMs;
    if (fromStart) walk.fromStartAt = now;
    // Without events of its own it must come to the end of the others' at some time, and starts over only then.
    if (fromStart && isGlance && !this.#ownDone) walk.floor = '0';
    return {
      floor: fromStart ? '0' : walk.floor,
      ownShards: walk === this.#own,
      readyMax: isGlance ? Math.min(readyMax, this.#glance) : readyMax,
    };
  }

  /**
   * Updates the walk with the result of a claim. `exhausted`: nothing more can be claimed now. `pauseMs`: claim again after
   * this time, even without a notification.
   */
  found({ floor, readyMax }: Look, finding: LookResult, now: number): { exhausted: boolean; pauseMs?: number } {
    const walk = this.#current;
    const { reached, atEnd, claimed, relays } = finding;
    if (walk === this.#own) this.#relays = relays;
    walk.claimed += claimed;
    if (claimed > 0) this.#blockedPauseMs = blockedPauseMs;
    if (!atEnd) {
      if (reached !== undefined && compareSeq(reached, walk.floor) > 0) walk.floor = reached;
      const isFruitful = claimed * 2 > readyMax;
      if (walk === this.#all && this.#ownDone && isFruitful) {
        // Perhaps a new backlog: own shards first. If there is none, all shards are next again, without a pause.
        this.#current = this.#own;
        this.#glance = Math.min(glanceMax, this.#glance * 2);
      } else if (walk === this.#all) {
        this.#endGlance(now, isFruitful);
      }
      this.#ownDone = false;
      return { exhausted: false };
    }
    // A walk of several claims that claimed something is followed by another one: events it skipped may be free now.
    const isComplete = floor === '0' || walk.claimed === 0;
    walk.floor = '0';
    walk.claimed = 0;
    if (!isComplete) return { exhausted: false };
    if (walk === this.#own && relays > 1) {
      this.#ownDone = true;
      return { exhausted: false, pauseMs: Math.max(0, this.#allEndedAt + allAfterMs - now) };
    }
    this.#endAll(now);
    if (floor === '0') return { exhausted: true };
    const pauseMs = this.#blockedPauseMs;
    this.#blockedPauseMs = Math.min(blockedPauseMsMax, pauseMs * 2);
    return { exhausted: true, pauseMs };
  }

  #choose(now: number): void {
    if (this.#current === this.#all) return;
    if (this.#relays === 1 && !this.#ownDone) return; // Its own shards are all there are.
    if (now - this.#allEndedAt >= (this.#ownDone ? allAfterMs : this.#glanceAfterMs)) this.#current = this.#all;
  }

  #endGlance(now: number, isFruitful: boolean): void {
    const size = this.#glance * 2;
    this.#endAll(now);
    this.#glance = Math.min(size, isFruitful ? glanceMax : glanceBlockedMax);
    this.#glanceAfterMs = isFruitful ? glanceAgainMs : glanceEveryMs;
  }

  #endAll(now: number): void {
    this.#allEndedAt = now;
    this.#current = this.#own;
    this.#ownDone = false;
    this.#glance = glanceMin;
    this.#glanceAfterMs = glanceEveryMs;
  }
}

function newWalk(): Walk {
  return { floor: '0', fromStartAt: Number.NEGATIVE_INFINITY, claimed: 0 };
}
