import type { ClaimedRow } from '../outbox/claim.ts';
import type { Outcome } from './deliver.ts';
import { Line } from './line.ts';

/** An event in this relay's hands, with the number of the claim that brought it. */
export interface Held extends ClaimedRow {
  claimNumber: number;
  /** How long until its next try, once it has failed: what waits behind it waits as long. */
  retryInMs?: number;
}

/** What the dispatcher decided about an event; the completer writes it down. */
export type Verdict =
  | { held: Held; outcome: Outcome }
  /** Not tried: it stays in line behind `behind`, or goes back as it was. */
  | { held: Held; outcome: 'release'; behind?: Held }
  /** Not tried: its key is slow and it steps aside. */
  | { held: Held; outcome: 'shed' };

export interface DispatcherOptions {
  /** Deliveries under way at once. */
  inFlightMax: number;
  /** Events held at once, at the moment. */
  holdMax: () => number;
  /** Calls back exactly once, also before it returns. */
  deliver: (row: ClaimedRow, done: (outcome: Outcome) => void) => void;
  onVerdict: (verdict: Verdict) => void;
  now?: () => number;
}

/** Keys with much work in hand may together hold this part of the buffer. */
const crowdedShare = 0.5;

/**
 * Decides what is delivered when: events of one key one after the other in order of seq, different keys side by side,
 * never more than `inFlightMax` at once. When an event fails, those of its key that wait behind it are given back, so
 * that none can pass it (G4).
 *
 * A claim may bring an event whose predecessor is already in this relay's hands. If that predecessor fails before the
 * claim's answer arrives, the newcomer must not be delivered either: `#broken` remembers the key until what was given
 * back is written down and every claim sent before that has answered. Meanwhile the key must not be claimed: what such a
 * claim brings is given back too, and the key would stay broken for as long as it has events.
 */
export class Dispatcher {
  readonly #options: DispatcherOptions;
  readonly #now: () => number;
  readonly #lines = new Map<string, Line>();
  readonly #startable = new Fifo<Held>();
  /** Keys of which something was given back: how many of those are not written down yet, and the last claim that may
   * not know of them. */
  readonly #broken = new Map<string, { unwritten: number; lastClaim: number }>();
  #lastAnswered = 0;
  #inFlight = 0;
  #waiting = 0;
  #stopped = false;
  #pumping = false;
  /** Grows when the lease is lost: results of deliveries begun before then are nobody's business any more. */
  #generation = 0;

  constructor(options: DispatcherOptions) {
    this.#options = options;
    this.#now = options.now ?? (() => performance.now());
  }

  get inFlight(): number {
    return this.#inFlight;
  }

  get waiting(): number {
    return this.#waiting;
  }

  accept(batch: readonly Held[]): void {
    for (const held of batch) {
      if (this.#stopped || this.#isBroken(held)) {
        this.#giveBack({ held, outcome: 'release' });
        continue;
      }
      this.#waiting++;
      if (held.key === null) {
        this.#startable.push(held);
        continue;
      }
      const line = this.#lines.get(held.key);
      if (line) {
        line.behind.push(held);
      } else {
        this.#lines.set(held.key, new Line());
        this.#startable.push(held);
      }
    }
    this.#pump();
  }

  /** One event of this key that was given back is written down; claims up to `lastClaim` may still not have seen it. */
  confirmGivenBack(key: string, lastClaim: number): void {
    const broken = this.#broken.get(key);
    if (!broken) return;
    broken.unwritten--;
    broken.lastClaim = lastClaim;
    if (broken.unwritten <= 0 && lastClaim <= this.#lastAnswered) this.#broken.delete(key);
  }

  /** Every claim up to this number has been answered and accepted. */
  claimsAnswered(claimNumber: number): void {
    this.#lastAnswered = claimNumber;
    for (const [key, { unwritten, lastClaim }] of this.#broken) {
      if (unwritten <= 0 && lastClaim <= claimNumber) this.#broken.delete(key);
    }
  }

  /** Keys of which something was given back a moment ago. */
  brokenKeys(): Iterable<string> {
    return this.#broken.keys();
  }

  isSlow(key: string): boolean {
    return this.#lines.get(key)?.isSlow(this.#now()) ?? false;
  }

  /** Whether a key holds at least half of what it should. */
  hasEnough(key: string): boolean {
    const line = this.#lines.get(key);
    return line !== undefined && line.behind.length * 2 >= line.share(this.#now());
  }

  /**
   * Answers the keys that have enough work in hand and should not be claimed now, and gives back what they hold beyond
   * their share: otherwise one aggregate with a long backlog fills the relay's buffer and every other one waits for it.
   */
  shedCrowded(): Set<string> {
    const now = this.#now();
    const holdMax = this.#options.holdMax();
    const isShort = this.#waiting + this.#inFlight > holdMax / 2;
    const crowded = [...this.#lines].filter(([key, line]) => line.isSlow(now) || this.hasEnough(key));
    const fairShare = Math.max(0, Math.floor((holdMax * crowdedShare) / crowded.length) - 1);
    const enough = new Set<string>();
    for (const [key, line] of crowded) {
      const share = Math.min(line.share(now), fairShare);
      const isSlow = line.isSlow(now);
      if (isSlow || isShort) this.#shed(line.behind.splice(share), isSlow);
      if (line.behind.length * 2 >= share) enough.add(key);
    }
    return enough;
  }

  #shed(excess: readonly Held[], isSlow: boolean): void {
    this.#waiting -= excess.length;
    for (const held of excess) this.#giveBack({ held, outcome: isSlow ? 'shed' : 'release' });
  }

  /** Starts nothing more, and gives back at once what has not begun. */
  stop(): void {
    this.#stopped = true;
    this.#returnWaiting();
  }

  /** The lease is gone: forget everything. Deliveries under way still occupy their slots until they end. */
  forget(): void {
    this.#generation++;
    this.#lines.clear();
    this.#broken.clear();
    this.#startable.clear();
    this.#waiting = 0;
  }

  #returnWaiting(): void {
    const waiting: Held[] = this.#startable.drain();
    for (const [key, line] of this.#lines) {
      waiting.push(...line.behind);
      line.behind = [];
      if (!line.begun) this.#lines.delete(key);
    }
    this.#waiting -= waiting.length;
    for (const held of waiting) this.#giveBack({ held, outcome: 'release' });
  }

  /** Whether an earlier event of the same key was given back and the claim that brought this one may not know it. */
  #isBroken(held: Held): boolean {
    const broken = held.key === null ? undefined : this.#broken.get(held.key);
    return broken !== undefined && (broken.unwritten > 0 || held.claimNumber <= broken.lastClaim);
  }

  #giveBack(verdict: Verdict): void {
    const { key } = verdict.held;
    if (key !== null) {
      const broken = this.#broken.get(key);
      if (broken) broken.unwritten++;
      else this.#broken.set(key, { unwritten: 1, lastClaim: 0 });
    }
    this.#options.onVerdict(verdict);
  }

  /** Starts what may start. A delivery that ends at once comes back here, so it loops instead of nesting. */
  #pump(): void {
    if (this.#pumping) return;
    this.#pumping = true;
    while (this.#inFlight < this.#options.inFlightMax) {
      const held = this.#startable.shift();
      if (held === undefined) break;
      this.#start(held);
    }
    this.#pumping = false;
  }

  #start(held: Held): void {
    this.#waiting--;
    this.#inFlight++;
    if (held.key !== null) this.#lines.get(held.key)?.begin(this.#now());
    const generation = this.#generation;
    this.#options.deliver(held, (outcome) => {
      this.#inFlight--;
      if (generation === this.#generation) this.#finish(held, outcome);
      this.#pump();
    });
  }

  #finish(held: Held, outcome: Outcome): void {
    if (outcome.kind === 'ok') {
      this.#options.onVerdict({ held, outcome });
      if (held.key !== null) this.#advance(held.key);
      return;
    }
    // Also for a dead letter: until that is written down, a crash would bring the event back behind its followers.
    this.#giveBack({ held, outcome });
    const line = held.key === null ? undefined : this.#lines.get(held.key);
    if (!line || held.key === null) return;
    this.#lines.delete(held.key);
    this.#waiting -= line.behind.length;
    for (const follower of line.behind) this.#giveBack({ held: follower, outcome: 'release', behind: held });
  }

  #advance(key: string): void {
    const line = this.#lines.get(key);
    if (!line) return;
    const next = line.advance(this.#now());
    if (next) {
      this.#startable.push(next);
    } else {
      this.#lines.delete(key);
    }
  }
}

/** A first-in-first-out list whose shift does not move the rest. */
class Fifo<T> {
  #items: T[] = [];
  #head = 0;

  push(item: T): void {
    this.#items.push(item);
  }

  shift(): T | undefined {
    if (this.#head === this.#items.length) return undefined;
    const item = this.#items[this.#head++];
    if (this.#head > 1_024 && this.#head * 2 > this.#items.length) {
      this.#items = this.#items.slice(this.#head);
      this.#head = 0;
    }
    return item;
  }

  drain(): T[] {
    const rest = this.#items.slice(this.#head);
    this.clear();
    return rest;
  }

  clear(): void {
    this.#items = [];
    this.#head = 0;
  }
}
