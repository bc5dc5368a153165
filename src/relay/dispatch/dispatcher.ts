import type { ClaimedRow } from '../../outbox/delivering/claim.ts';
import type { Outcome, Plan } from '../deliver/deliverer.ts';
import { Fifo } from './fifo.ts';
import type { Indexed } from './indexed-set.ts';
import { KeyMemory } from './key-memory.ts';
import { KeyQueue } from './key-queue.ts';
import type { PayloadLoad } from './payload-loader.ts';
import { isPrimeSuspect, suspicionOf } from './suspicion.ts';

/** An event in this relay's hands, with the number of the claim that brought it. */
export interface ClaimedEvent extends ClaimedRow, Indexed {
  claimNumber: number;
  /** How long until its next try, once it has failed: what waits behind it waits as long. */
  retryInMs?: number;
  /** Where it goes, once that was asked. */
  plan?: Plan | undefined;
  /** Set by the payload loader, while it loads or keeps the payload. */
  load?: PayloadLoad | undefined;
}

/** What the dispatcher decided about an event; the settler writes it down. */
export type Verdict =
  | { event: ClaimedEvent; outcome: Outcome }
  /** Not tried: it stays in line behind `behind`, or goes back as it was. */
  | { event: ClaimedEvent; outcome: 'release'; behind?: ClaimedEvent }
  /** Not tried: its key is slow and it steps aside. */
  | { event: ClaimedEvent; outcome: 'shed' };

export interface DispatcherOptions {
  /** Deliveries under way at once, of those that take a slot. */
  inFlightMax: number;
  /** Whether the delivery of this event takes a slot. What goes to destinations only does not: they have limits. */
  takesSlot?: (event: ClaimedEvent) => boolean;
  /** How many events of a key may be under way when `next` follows `previous`: more than 1 only where order is kept. */
  runMax?: (previous: ClaimedEvent, next: ClaimedEvent) => number;
  /** Events the relay buffers at once, at the moment. */
  bufferTarget: () => number;
  /** Loads the payload of an event that came without one. Calls back with an outcome if that failed. */
  load?: (event: ClaimedEvent, done: (failure: Outcome | undefined) => void) => void;
  /** Calls back exactly once, also before it returns. */
  deliver: (event: ClaimedEvent, done: (outcome: Outcome) => void) => void;
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
  #queues = new Map<string, KeyQueue>();
  /** What may begin: with a slot, and without. */
  readonly #startable = new Fifo<ClaimedEvent>();
  readonly #unlimited = new Fifo<ClaimedEvent>();
  /** What may begin once its payload is loaded. Such an event takes no slot and is the only one of its key's front. */
  readonly #loading = new Set<ClaimedEvent>();
  /** Prime suspects: they begin when nothing else is under way, and nothing else begins meanwhile. */
  #alone: ClaimedEvent[] = [];
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

  accept(batch: readonly ClaimedEvent[]): void {
    for (const event of batch) {
      if (this.#stopped || this.#broken.unknownTo(event) !== undefined) {
        this.#giveBack({ event, outcome: 'release' });
        continue;
      }
      const shelved = this.#shelved.unknownTo(event);
      if (shelved !== undefined) mayNotPass(event, shelved);
      this.#waiting++;
      if (event.key === null) {
        this.#offer(event);
        continue;
      }
      const queue = this.#queues.get(event.key) ?? new KeyQueue();
      this.#queues.set(event.key, queue);
      queue.behind.push(event);
      this.#lead(queue);
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
  get hasKeyQueues(): boolean {
    return this.#queues.size > 0;
  }

  /** Keys of which something was given back a moment ago. */
  brokenKeys(): Iterable<string> {
    return this.#broken.keys();
  }

  isSlow(key: string): boolean {
    return this.#queues.get(key)?.isSlow(this.#now()) ?? false;
  }

  /** Whether a key holds at least half of what it should. */
  hasEnough(key: string): boolean {
    const queue = this.#queues.get(key);
    return queue !== undefined && queue.behind.length * 2 >= queue.bufferShare(this.#now());
  }

  /**
   * Answers the keys that have enough work in hand and should not be claimed now, and gives back what they hold beyond
   * their share: otherwise one aggregate with a long backlog fills the relay's buffer and every other one waits for it.
   */
  releaseExcess(): Set<string> {
    const now = this.#now();
    const bufferTarget = this.#options.bufferTarget();
    const isShort = this.#waiting + this.#inFlight > bufferTarget / 2;
    const crowded = [...this.#queues].filter(([key, queue]) => queue.isSlow(now) || this.hasEnough(key));
    const fairShare = Math.max(0, Math.floor((bufferTarget * crowdedShare) / crowded.length) - 1);
    const enough = new Set<string>();
    for (const [key, queue] of crowded) {
      const share = Math.min(queue.bufferShare(now), fairShare);
      const isSlow = queue.isSlow(now);
      if (isSlow || isShort) this.#release(queue.behind.splice(share), isSlow);
      if (queue.behind.length * 2 >= share) enough.add(key);
    }
    return enough;
  }

  #release(excess: readonly ClaimedEvent[], isSlow: boolean): void {
    this.#waiting -= excess.length;
    for (const event of excess) this.#giveBack({ event, outcome: isSlow ? 'shed' : 'release' });
  }

  /** Starts nothing more, and gives back at once what has not begun. */
  stop(): void {
    this.#stopped = true;
    this.#returnWaiting();
  }

  /** The lease is gone: forget everything. Deliveries under way still occupy their slots until they end. */
  forget(): void {
    this.#generation++;
    this.#queues.clear();
    this.#broken.clear();
    this.#shelved.clear();
    this.#startable.clear();
    this.#unlimited.clear();
    this.#loading.clear();
    this.#alone = [];
    this.#waiting = 0;
  }

  #returnWaiting(): void {
    const waiting: ClaimedEvent[] = [
      ...this.#startable.drain(),
      ...this.#unlimited.drain(),
      ...this.#loading,
      ...this.#alone.splice(0),
    ];
    this.#loading.clear();
    for (const [key, queue] of this.#queues) {
      waiting.push(...queue.behind);
      queue.behind = [];
      queue.leaveUnbegun();
      if (!queue.begun) this.#queues.delete(key);
    }
    this.#waiting -= waiting.length;
    for (const event of waiting) this.#giveBack({ event, outcome: 'release' });
  }

  #giveBack(verdict: Verdict): void {
    const { key } = verdict.event;
    if (key !== null) this.#broken.add(key);
    this.#options.onVerdict(verdict);
  }

  /** Lets the next events of a key begin, as far as they may. */
  #lead(queue: KeyQueue): void {
    for (let next = queue.behind[0]; next !== undefined; next = queue.behind[0]) {
      if (queue.front > 0 && queue.front >= this.#runMax(queue.tail as ClaimedEvent, next)) return;
      queue.behind.shift();
      queue.lead(next);
      this.#offer(next);
    }
  }

  #runMax(previous: ClaimedEvent, next: ClaimedEvent): number {
    if (isPrimeSuspect(previous) || isPrimeSuspect(next)) return 1;
    if (this.#loading.has(previous) || this.#mustLoad(next)) return 1;
    return this.#options.runMax?.(previous, next) ?? 1;
  }

  #mustLoad(event: ClaimedEvent): boolean {
    if (event.payloadJson !== undefined || event.id === '' || this.#options.load === undefined) return false;
    return suspicionOf(event) === undefined; // Loading it may be what ended the relays before.
  }

  #offer(event: ClaimedEvent): void {
    if (isPrimeSuspect(event)) this.#alone.push(event);
    else if (this.#mustLoad(event)) this.#load(event);
    else this.#offerLoaded(event);
  }

  #load(event: ClaimedEvent): void {
    this.#loading.add(event);
    this.#options.load?.(event, (failure) => {
      if (!this.#loading.delete(event)) return; // Given back, or the lease was lost meanwhile.
      if (failure === undefined) {
        this.#offerLoaded(event);
        const queue = event.key === null ? undefined : this.#queues.get(event.key);
        if (queue) this.#lead(queue);
      } else {
        this.#waiting--;
        this.#finish(event, failure);
      }
      this.#pump();
    });
  }

  #offerLoaded(event: ClaimedEvent): void {
    (this.#takesSlot(event) ? this.#startable : this.#unlimited).push(event);
  }

  #takesSlot(event: ClaimedEvent): boolean {
    return this.#options.takesSlot?.(event) ?? true;
  }

  /** Starts what may start. A delivery that ends at once comes back here, so it loops instead of nesting. */
  #pump(): void {
    if (this.#pumping) return;
    this.#pumping = true;
    while (!this.#isTrial && (this.#alone.length === 0 || !this.#startAlone())) {
      const free = this.#unlimited.shift();
      const event = free ?? (this.#slotsTaken < this.#options.inFlightMax ? this.#startable.shift() : undefined);
      if (event === undefined) break;
      this.#start(event, free === undefined);
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
    const event = this.#alone.shift() as ClaimedEvent;
    this.#aloneSince = undefined;
    if (this.#inFlight > 0) {
      // Something takes long: its relay must not stand still for a suspect.
      this.#waiting--;
      this.#finish(event, { kind: 'release', done: event.done, delayMs: postponeMs });
      return false;
    }
    this.#isTrial = true;
    this.#start(event, true);
    return this.#isTrial;
  }

  #start(event: ClaimedEvent, takesSlot: boolean): void {
    this.#waiting--;
    this.#inFlight++;
    if (takesSlot) this.#slotsTaken++;
    if (event.key !== null) this.#queues.get(event.key)?.begin(this.#now(), takesSlot);
    const generation = this.#generation;
    this.#options.deliver(event, (outcome) => {
      this.#inFlight--;
      this.#isTrial = false; // If this was none, there is none.
      if (takesSlot) this.#slotsTaken--;
      if (generation === this.#generation) this.#finish(event, outcome);
      this.#pump();
    });
  }

  #finish(event: ClaimedEvent, outcome: Outcome): void {
    if (outcome.kind === 'ok') {
      this.#options.onVerdict({ event, outcome });
      if (event.key !== null) this.#advance(event.key);
      return;
    }
    if (outcome.kind === 'shelve') {
      this.#shelve(event, outcome);
      return;
    }
    // Also for a dead letter: until that is written down, a crash would bring the event back behind its followers.
    this.#giveBack({ event, outcome });
    const queue = event.key === null ? undefined : this.#queues.get(event.key);
    if (!queue || event.key === null) return;
    this.#queues.delete(event.key);
    const followers = this.#notBegun(event.key, queue);
    if (queue.waits) {
      for (const fifo of [this.#unlimited, this.#startable]) fifo.remove((other) => other.key === event.key);
    }
    this.#waiting -= followers.length;
    for (const follower of followers) this.#giveBack({ event: follower, outcome: 'release', behind: event });
  }

  /** What is behind the events of a key that are under way. Of a run, some that may begin may not have yet. */
  #notBegun(key: string, queue = this.#queues.get(key)): ClaimedEvent[] {
    if (!queue) return [];
    const isOfKey = (event: ClaimedEvent) => event.key === key;
    const front = queue.waits ? [...this.#unlimited.items(), ...this.#startable.items()].filter(isOfKey) : [];
    return [...front, ...queue.behind];
  }

  #shelve(event: ClaimedEvent, outcome: Outcome & { kind: 'shelve' }): void {
    if (event.key !== null) {
      this.#shelved.add(event.key, event.seq, outcome.waitsFor);
      for (const follower of this.#notBegun(event.key)) mayNotPass(follower, outcome.waitsFor);
    }
    this.#options.onVerdict({ event, outcome });
    if (event.key !== null) this.#advance(event.key);
  }

  #advance(key: string): void {
    const queue = this.#queues.get(key);
    if (!queue) return;
    queue.advance(this.#now());
    this.#lead(queue);
    if (queue.front === 0) this.#drop(key);
  }

  #drop(key: string): void {
    this.#queues.delete(key);
    // Not the same one again: see IndexedSet.
    if (this.#queues.size === 0) this.#queues = new Map();
  }
}

function mayNotPass(event: ClaimedEvent, destinations: Iterable<string>): void {
  event.shelved = [...new Set([...event.shelved, ...destinations])];
}
