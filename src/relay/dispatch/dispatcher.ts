import type { ClaimedRow } from '../../outbox/delivering/claim.ts';
import type { Outcome, Plan } from '../deliver/deliverer.ts';
import { Fifo } from './fifo.ts';
import type { Bagged } from './indexed-set.ts';
import { KeyMemory } from './key-memory.ts';
import { Line } from './key-queue.ts';
import type { PayloadLoad } from './payload-loader.ts';
import { isPrimeSuspect, suspicionOf } from './suspicion.ts';

/** An event in this relay's hands, with the number of the claim that brought it. */
export interface Held extends ClaimedRow, Bagged {
  claimNumber: number;
  /** How long until its next try, once it has failed: what waits behind it waits as long. */
  retryInMs?: number;
  /** Where it goes, once that was asked. */
  plan?: Plan | undefined;
  /** Set by the payload loader, while it loads or keeps the payload. */
  load?: PayloadLoad | undefined;
}

/** What the dispatcher decided about an event; the completer writes it down. */
export type Verdict =
  | { held: Held; outcome: Outcome }
  /** Not tried: it stays in line behind `behind`, or goes back as it was. */
  | { held: Held; outcome: 'release'; behind?: Held }
  /** Not tried: its key is slow and it steps aside. */
  | { held: Held; outcome: 'shed' };

export interface DispatcherOptions {
  /** Deliveries under way at once, of those that take a slot. */
  inFlightMax: number;
  /** Whether the delivery of this event takes a slot. What goes to destinations only does not: they have limits. */
  takesSlot?: (held: Held) => boolean;
  /** How many events of a key may be under way when `next` follows `previous`: more than 1 only where order is kept. */
  runMax?: (previous: Held, next: Held) => number;
  /** Events held at once, at the moment. */
  holdMax: () => number;
  /** Loads the payload of an event that came without one. Calls back with an outcome if that failed. */
  load?: (held: Held, done: (failure: Outcome | undefined) => void) => void;
  /** Calls back exactly once, also before it returns. */
  deliver: (held: Held, done: (outcome: Outcome) => void) => void;
  onVerdict: (verdict: Verdict) => void;
  now?: () => number;
}

/** How long nothing else begins because a prime suspect waits to be alone, and how long it steps aside if that was in vain. */
const aloneWaitMs = 5_000;
const postponeMs = 60_000;
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
 *
 * An event that waits for a destination which is away does not hold its key up; those behind it are only kept from
 * passing it there. `#shelved` remembers that in the same way.
 */
export class Dispatcher {
  readonly #options: DispatcherOptions;
  readonly #now: () => number;
  #lines = new Map<string, Line>();
  /** What may begin: with a slot, and without. */
  readonly #startable = new Fifo<Held>();
  readonly #unlimited = new Fifo<Held>();
  /** What may begin once its payload is loaded. Such an event takes no slot and is the only one of its key's front. */
  readonly #loading = new Set<Held>();
  /** Prime suspects: they begin when nothing else is under way, and nothing else begins meanwhile. */
  #alone: Held[] = [];
  #aloneSince: number | undefined;
  #aloneTimer: NodeJS.Timeout | undefined;
  #isTrial = false;
  /** Keys of which something was given back, and keys of which something was put on the shelf. */
  readonly #broken = new KeyMemory();
  readonly #shelved = new KeyMemory();
  #inFlight = 0;
  #slotsTaken = 0;
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
      if (this.#stopped || this.#broken.unknownTo(held) !== undefined) {
        this.#giveBack({ held, outcome: 'release' });
        continue;
      }
      const shelved = this.#shelved.unknownTo(held);
      if (shelved !== undefined) mayNotPass(held, shelved);
      this.#waiting++;
      if (held.key === null) {
        this.#offer(held);
        continue;
      }
      const line = this.#lines.get(held.key) ?? new Line();
      this.#lines.set(held.key, line);
      line.behind.push(held);
      this.#lead(line);
    }
    this.#pump();
  }

  /** One event of this key that was given back, or shelved, is written down; claims up to `lastClaim` may not know. */
  confirm(key: string, as: 'given back' | 'shelved', lastClaim: number): void {
    (as === 'shelved' ? this.#shelved : this.#broken).confirm(key, lastClaim);
  }

  /** Every claim up to this number has been answered and accepted. */
  claimsAnswered(claimNumber: number): void {
    this.#broken.claimsAnswered(claimNumber);
    this.#shelved.claimsAnswered(claimNumber);
  }

  /** Whether it holds events that have a key. */
  get hasLines(): boolean {
    return this.#lines.size > 0;
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
    this.#shelved.clear();
    this.#startable.clear();
    this.#unlimited.clear();
    this.#loading.clear();
    this.#alone = [];
    this.#waiting = 0;
  }

  #returnWaiting(): void {
    const waiting: Held[] = [
      ...this.#startable.drain(),
      ...this.#unlimited.drain(),
      ...this.#loading,
      ...this.#alone.splice(0),
    ];
    this.#loading.clear();
    for (const [key, line] of this.#lines) {
      waiting.push(...line.behind);
      line.behind = [];
      line.leaveUnbegun();
      if (!line.begun) this.#lines.delete(key);
    }
    this.#waiting -= waiting.length;
    for (const held of waiting) this.#giveBack({ held, outcome: 'release' });
  }

  #giveBack(verdict: Verdict): void {
    const { key } = verdict.held;
    if (key !== null) this.#broken.add(key);
    this.#options.onVerdict(verdict);
  }

  /** Lets the next events of a key begin, as far as they may. */
  #lead(line: Line): void {
    for (let next = line.behind[0]; next !== undefined; next = line.behind[0]) {
      if (line.front > 0 && line.front >= this.#runMax(line.tail as Held, next)) return;
      line.behind.shift();
      line.lead(next);
      this.#offer(next);
    }
  }

  #runMax(previous: Held, next: Held): number {
    if (isPrimeSuspect(previous) || isPrimeSuspect(next)) return 1;
    if (this.#loading.has(previous) || this.#mustLoad(next)) return 1;
    return this.#options.runMax?.(previous, next) ?? 1;
  }

  #mustLoad(held: Held): boolean {
    if (held.payloadJson !== undefined || held.id === '' || this.#options.load === undefined) return false;
    return suspicionOf(held) === undefined; // Loading it may be what ended the relays before.
  }

  #offer(held: Held): void {
    if (isPrimeSuspect(held)) this.#alone.push(held);
    else if (this.#mustLoad(held)) this.#load(held);
    else this.#offerLoaded(held);
  }

  #load(held: Held): void {
    this.#loading.add(held);
    this.#options.load?.(held, (failure) => {
      if (!this.#loading.delete(held)) return; // Given back, or the lease was lost meanwhile.
      if (failure === undefined) {
        this.#offerLoaded(held);
        const line = held.key === null ? undefined : this.#lines.get(held.key);
        if (line) this.#lead(line);
      } else {
        this.#waiting--;
        this.#finish(held, failure);
      }
      this.#pump();
    });
  }

  #offerLoaded(held: Held): void {
    (this.#takesSlot(held) ? this.#startable : this.#unlimited).push(held);
  }

  #takesSlot(held: Held): boolean {
    return this.#options.takesSlot?.(held) ?? true;
  }

  /** Starts what may start. A delivery that ends at once comes back here, so it loops instead of nesting. */
  #pump(): void {
    if (this.#pumping) return;
    this.#pumping = true;
    while (!this.#isTrial && (this.#alone.length === 0 || !this.#startAlone())) {
      const free = this.#unlimited.shift();
      const held = free ?? (this.#slotsTaken < this.#options.inFlightMax ? this.#startable.shift() : undefined);
      if (held === undefined) break;
      this.#start(held, free === undefined);
    }
    this.#pumping = false;
  }

  /** Begins the trial of a prime suspect if it is time for one. True: nothing else may begin now. */
  #startAlone(): boolean {
    this.#aloneSince ??= this.#now();
    const leftMs = this.#aloneSince + aloneWaitMs - this.#now();
    if (this.#inFlight > 0 && leftMs > 0) {
      this.#aloneTimer ??= setTimeout(() => {
        this.#aloneTimer = undefined;
        this.#pump();
      }, leftMs).unref();
      return true;
    }
    const held = this.#alone.shift() as Held;
    this.#aloneSince = undefined;
    if (this.#inFlight > 0) {
      // Something takes long: its relay must not stand still for a suspect.
      this.#waiting--;
      this.#finish(held, { kind: 'release', done: held.done, delayMs: postponeMs });
      return false;
    }
    this.#isTrial = true;
    this.#start(held, true);
    return this.#isTrial;
  }

  #start(held: Held, takesSlot: boolean): void {
    this.#waiting--;
    this.#inFlight++;
    if (takesSlot) this.#slotsTaken++;
    if (held.key !== null) this.#lines.get(held.key)?.begin(this.#now(), takesSlot);
    const generation = this.#generation;
    this.#options.deliver(held, (outcome) => {
      this.#inFlight--;
      this.#isTrial = false; // If this was none, there is none.
      if (takesSlot) this.#slotsTaken--;
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
    if (outcome.kind === 'shelve') {
      this.#shelve(held, outcome);
      return;
    }
    // Also for a dead letter: until that is written down, a crash would bring the event back behind its followers.
    this.#giveBack({ held, outcome });
    const line = held.key === null ? undefined : this.#lines.get(held.key);
    if (!line || held.key === null) return;
    this.#lines.delete(held.key);
    const followers = this.#notBegun(held.key, line);
    if (line.waits) {
      for (const fifo of [this.#unlimited, this.#startable]) fifo.remove((other) => other.key === held.key);
    }
    this.#waiting -= followers.length;
    for (const follower of followers) this.#giveBack({ held: follower, outcome: 'release', behind: held });
  }

  /** What is behind the events of a key that are under way. Of a run, some that may begin may not have yet. */
  #notBegun(key: string, line = this.#lines.get(key)): Held[] {
    if (!line) return [];
    const isOfKey = (held: Held) => held.key === key;
    const front = line.waits ? [...this.#unlimited.items(), ...this.#startable.items()].filter(isOfKey) : [];
    return [...front, ...line.behind];
  }

  #shelve(held: Held, outcome: Outcome & { kind: 'shelve' }): void {
    if (held.key !== null) {
      this.#shelved.add(held.key, held.seq, outcome.waitsFor);
      for (const follower of this.#notBegun(held.key)) mayNotPass(follower, outcome.waitsFor);
    }
    this.#options.onVerdict({ held, outcome });
    if (held.key !== null) this.#advance(held.key);
  }

  #advance(key: string): void {
    const line = this.#lines.get(key);
    if (!line) return;
    line.advance(this.#now());
    this.#lead(line);
    if (line.front === 0) this.#drop(key);
  }

  #drop(key: string): void {
    this.#lines.delete(key);
    // Not the same one again: see Bag.
    if (this.#lines.size === 0) this.#lines = new Map();
  }
}

function mayNotPass(held: Held, destinations: Iterable<string>): void {
  held.shelved = [...new Set([...held.shelved, ...destinations])];
}
