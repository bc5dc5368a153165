import type { Planner } from '../deliver/planner.ts';
import type { ClaimedEvent } from '../event/claimed-event.ts';
import { mayNotPass } from '../event/claimed-event.ts';
import type { EventOutcome } from '../event/outcome.ts';
import { isPrimeSuspect, suspicionOf } from '../event/suspicion.ts';
import { AloneQueue } from './alone-queue.ts';
import { HandlerLines } from './handler-lines.ts';
import type { KeyDecisions } from './key-decisions.ts';
import type { KeyQueue } from './key-queue.ts';
import { KeyQueues } from './key-queues.ts';
import type { LoadableEvent, PayloadLoader } from './payload-loader.ts';
import type { QueueSlots } from './queue-slots.ts';
import { SlotsByQueue } from './queue-slots.ts';
import { blockedPerSlot, linesShare, postponeMs, slowKeyDelayMs } from './tuning.ts';
import { WaitingFronts } from './waiting-fronts.ts';

export interface DispatcherOptions {
  /** For each queue: deliveries in flight at once, of those that take a slot. */
  slots: ReadonlyMap<string, number>;
  /** The current size limit of a queue's buffer, in events. */
  bufferTarget: (queue: string) => number;
  /** The lane's memory of what the dispatcher decided. */
  decisions: KeyDecisions;
  planner: Pick<Planner, 'plansAhead' | 'plan' | 'takesSlot' | 'runMax' | 'limitedHandlerOf'>;
  payloads: Pick<PayloadLoader, 'load' | 'release'>;
  /** Whether a delivery may start: false without a valid lease. */
  mayStart: () => boolean;
  /** Delivers a planned event. Calls back exactly once, perhaps before it returns. */
  deliver: (event: ClaimedEvent, done: (outcome: EventOutcome) => void) => void;
  /** The same for a prime suspect, which is neither loaded nor planned yet. */
  deliverAlone: (event: ClaimedEvent, done: (outcome: EventOutcome) => void) => void;
  /** Takes the outcome of each event, once. Returns how long until the event is tried again, if there is a delay. */
  settle: (event: ClaimedEvent, outcome: EventOutcome) => number | undefined;
  now?: () => number;
}

const released: EventOutcome = { kind: 'released' };
const deferred: EventOutcome = { kind: 'released', delayMs: slowKeyDelayMs };

/**
 * Decides when each event is delivered: events of one key sequentially in order of seq, whatever their queues, different keys
 * in parallel, at most as many of a queue at once as it has slots. When an event is not delivered, the events of its key behind it are released, so that none can pass
 * it (G4). An event that is shelved for a destination does not block its key; those behind it must not pass it only at that
 * destination.
 *
 * Stages of an event: accept, wait in the queue of its key, load (a large payload), plan, start, outcome.
 */
export class Dispatcher {
  readonly #options: DispatcherOptions;
  readonly #now: () => number;
  readonly #queues = new KeyQueues();
  readonly #slots: SlotsByQueue;
  readonly #fronts: WaitingFronts;
  #isTrial = false;
  #releasedAtStop = 0;
  #stopped = false;
  #pumping = false;
  /** Grows when the lease is lost: outcomes of deliveries that were started before are dropped. */
  #generation = 0;

  constructor(options: DispatcherOptions) {
    this.#options = options;
    this.#now = options.now ?? (() => performance.now());
    const { limitedHandlerOf } = options.planner;
    const onDue = () => this.#pump();
    const newLines = () => limitedHandlerOf && new HandlerLines({ limitedHandlerOf, now: this.#now, onDue });
    this.#slots = new SlotsByQueue(options.slots, newLines);
    this.#fronts = new WaitingFronts(this.#slots, new AloneQueue({ now: this.#now, onOverdue: onDue }));
  }

  get inFlight(): number {
    return this.#slots.total('inFlight');
  }

  /** Events that have not started. */
  get waiting(): number {
    return this.#slots.total('waiting');
  }

  /** The same figures of one queue; `abandoned`: deliveries in flight that were started under a lease that is lost. */
  of(queue: string): Pick<QueueSlots, 'inFlight' | 'waiting' | 'abandoned'> {
    return this.#slots.named(queue);
  }

  /** Events released since `stop`. */
  get releasedAtStop(): number {
    return this.#releasedAtStop;
  }

  /** Takes over what a lane has claimed. */
  accept(batch: readonly ClaimedEvent[]): void {
    const { decisions } = this.#options;
    for (const event of batch) {
      if (this.#stopped || decisions.mustReturn(event)) {
        this.#return(event, released);
        continue;
      }
      const shelved = decisions.shelvedBefore(event);
      if (shelved !== undefined) mayNotPass(event, shelved);
      this.#slots.of(event).waiting++;
      if (event.key === null) {
        this.#offer(event);
        continue;
      }
      const queue = this.#queues.getOrAdd(event.key);
      // The common case: nothing else of this key is buffered, so the array is not needed.
      if (queue.front === 0 && queue.behind.length === 0) {
        this.#leadWith(queue, event);
        continue;
      }
      queue.behind.push(event);
      this.#lead(queue);
      if (queue.behind.length > 0 && queue.blocks(event.queue)) this.#slots.of(event).blocked++;
    }
    this.#pump();
  }

  /** A handler is below its limits again. */
  resume(): void {
    this.#pump();
  }

  /** Whether there are events that `releaseExcess` may release. */
  get mayHaveExcess(): boolean {
    return !this.#queues.isEmpty || this.#slots.all.some(({ lines }) => lines?.isEmpty === false);
  }

  /** Events of a queue that are of no use in its buffer now, because of what is in front of them. */
  blocked(queue: string): number {
    const { blocked, waiting } = this.#slots.named(queue);
    return Math.min(blocked, waiting);
  }

  /** Whether a key's backlog will not be needed soon. */
  isSlow(key: string): boolean {
    const queue = this.#queues.get(key);
    return queue !== undefined && (queue.isSlow(this.#now()) || queue.blocksForLong(this.#now()));
  }

  /** Whether a key has at least half of its share of the buffer. */
  hasEnough(key: string): boolean {
    return this.#queues.get(key)?.hasEnough(this.#now()) ?? false;
  }

  /**
   * Releases the events of keys with a long backlog beyond their share of the queue's buffer, and what is behind these: otherwise
   * one aggregate fills the buffer and every other one waits for it. The same for handlers at their limits, and for what waits
   * behind other queues or handlers. Returns the keys that have enough events in this queue and should not be claimed from it now.
   */
  releaseExcess(queueName: string): Set<string> {
    const bufferTarget = this.#options.bufferTarget(queueName);
    const slots = this.#slots.named(queueName);
    for (const { event, delayMs } of slots.lines?.excess(bufferTarget) ?? []) {
      slots.waiting--;
      this.#finish(event, { kind: 'released', done: event.done, delayMs });
    }
    const isShort = slots.waiting + slots.inFlight > bufferTarget / 2;
    const blockedMax = Math.min(slots.max * blockedPerSlot, bufferTarget * linesShare);
    const limits = { target: bufferTarget, blockedMax, isShort };
    const { slow, other, enough, blocked } = this.#queues.takeExcess(queueName, limits, this.#now());
    this.#returnAll(slow, deferred);
    this.#returnAll(other, released);
    slots.blocked = blocked;
    return enough;
  }

  #returnAll(waiting: readonly ClaimedEvent[], outcome: EventOutcome): void {
    for (const event of waiting) {
      this.#slots.of(event).waiting--;
      this.#return(event, outcome);
    }
  }

  /** Starts nothing more, and releases at once what has not started. */
  stop(): void {
    this.#stopped = true;
    this.#returnAll([...this.#fronts.drain(), ...this.#queues.drain()], released);
  }

  /** Releases an event, and those of its key behind it, if it has not started. Returns whether that is so. */
  release(event: ClaimedEvent): boolean {
    const queue = this.#queues.get(event.key);
    const at = queue?.behind.indexOf(event) ?? -1;
    if (queue && at !== -1) {
      this.#returnAll(queue.behind.splice(at), released);
      return true;
    }
    // Of a run in progress: it is about to start.
    if (queue?.begun || !this.#fronts.delete(event)) return false;
    this.#slots.of(event).waiting--;
    this.#finish(event, released);
    return true;
  }

  /** The lease is lost: drops everything. Deliveries in flight still occupy their slots until they end. */
  forget(): void {
    this.#generation++;
    for (const slots of this.#slots.all) {
      slots.abandoned = slots.inFlight;
      slots.waiting = 0;
      slots.blocked = 0;
    }
    this.#queues.clear();
    this.#fronts.drain();
  }

  /** The event goes back to the queue, or becomes a dead letter. Returns how long until it is tried again. */
  #return(event: ClaimedEvent, outcome: EventOutcome): number | undefined {
    if (event.key !== null) this.#options.decisions.returning(event.key);
    if (this.#stopped && outcome.kind === 'released') this.#releasedAtStop++;
    return this.#settle(event, outcome);
  }

  #settle(event: LoadableEvent, outcome: EventOutcome): number | undefined {
    if (event.load !== undefined) this.#options.payloads.release(event);
    return this.#options.settle(event, outcome);
  }

  /** Lets the next events of a key start, as far as they may. */
  #lead(queue: KeyQueue): void {
    for (let next = queue.behind[0]; next !== undefined; next = queue.behind[0]) {
      if (queue.front > 0 && queue.front >= this.#runMax(queue.tail as ClaimedEvent, next)) return;
      queue.behind.shift();
      this.#leadWith(queue, next);
    }
  }

  #leadWith(queue: KeyQueue, event: ClaimedEvent): void {
    queue.lead(event);
    if (this.#offer(event)) queue.awaitSlot();
  }

  #runMax(previous: ClaimedEvent, next: ClaimedEvent): number {
    // With slots of different queues, the second could start first.
    if (previous.queue !== next.queue) return 1;
    if (isPrimeSuspect(previous) || isPrimeSuspect(next)) return 1;
    if (this.#fronts.loading.has(previous) || this.#mustLoad(next)) return 1;
    const { planner } = this.#options;
    if (!planner.plansAhead) return 1;
    planner.plan(next);
    return planner.runMax(previous, next);
  }

  #mustLoad(event: ClaimedEvent): boolean {
    if (event.payloadJson !== undefined || event.id === '') return false;
    return suspicionOf(event) === undefined; // Loading it may be what ended the earlier relays.
  }

  /** Returns whether the event needs only a slot of its queue now. */
  #offer(event: ClaimedEvent): boolean {
    if (isPrimeSuspect(event)) this.#fronts.alone.push(event);
    else if (!this.#mustLoad(event)) return this.#offerLoaded(event);
    else if (!this.#slots.of(event).lines?.take(event)) this.#load(event);
    return false;
  }

  #load(event: ClaimedEvent): void {
    this.#fronts.loading.add(event);
    this.#options.payloads.load(event, (failure) => {
      if (!this.#fronts.loading.delete(event)) return; // Released, or the lease was lost meanwhile.
      if (failure === undefined) {
        const mayStart = this.#offerLoaded(event);
        const queue = this.#queues.get(event.key);
        if (mayStart) queue?.awaitSlot();
        if (queue) this.#lead(queue);
      } else {
        const slots = this.#slots.of(event);
        slots.lines?.notLoading(event);
        slots.waiting--;
        this.#finish(event, failure);
      }
      this.#pump();
    });
  }

  #offerLoaded(event: ClaimedEvent): boolean {
    const { planner } = this.#options;
    if (planner.plansAhead) planner.plan(event);
    if (this.#slots.of(event).lines?.take(event)) return false;
    const takesSlot = !planner.plansAhead || planner.takesSlot(event);
    (takesSlot ? this.#slots.of(event).startable : this.#fronts.unlimited).push(event);
    return true;
  }

  /** Starts what may start. A delivery that ends synchronously calls this again, so it loops instead of nesting. */
  #pump(): void {
    if (this.#pumping) return;
    this.#pumping = true;
    const { alone } = this.#fronts;
    while (!this.#isTrial && (!alone.isDue || !this.#startAlone())) {
      const free = this.#fronts.unlimited.shift();
      const event = free ?? this.#slots.shift();
      if (event === undefined) {
        if (alone.isEmpty || this.inFlight > 0) break;
        alone.endRest();
        continue;
      }
      if (this.#mustLoad(event)) {
        this.#load(event);
        continue;
      }
      const along = this.#slots.of(event).lines?.alongWith(event) ?? [];
      this.#start(event, free === undefined);
      for (const other of along) this.#start(other, false, true);
    }
    this.#pumping = false;
  }

  /** Starts the trial of a prime suspect if it is time for one. Returns whether nothing else may start now. */
  #startAlone(): boolean {
    const event = this.#fronts.alone.next(this.inFlight);
    if (event === undefined) return true;
    if (this.inFlight > 0) {
      // A delivery takes long: the relay must not stall for suspects, for one after the other least of all.
      for (const suspect of [event, ...this.#fronts.alone.drain()]) {
        this.#slots.of(suspect).waiting--;
        this.#finish(suspect, { kind: 'released', done: suspect.done, delayMs: postponeMs });
      }
      return false;
    }
    this.#isTrial = true;
    this.#start(event, true);
    return this.#isTrial;
  }

  /** `occupies`: whether it needs a slot, be it that of another event of its batch. */
  #start(event: ClaimedEvent, takesSlot: boolean, occupies = takesSlot): void {
    const slots = this.#slots.of(event);
    slots.waiting--;
    slots.inFlight++;
    if (takesSlot) slots.taken++;
    this.#queues.get(event.key)?.begin(this.#now(), occupies);
    const generation = this.#generation;
    const done = (outcome: EventOutcome) => {
      slots.inFlight--;
      if (this.#isTrial) this.#fronts.alone.rest();
      this.#isTrial = false; // While there is a trial, nothing else is in flight.
      if (takesSlot) slots.taken--;
      if (generation === this.#generation) this.#finish(event, outcome);
      else slots.abandoned--;
      this.#pump();
    };
    if (!this.#options.mayStart()) {
      done({ kind: 'released', done: event.done });
    } else if (this.#isTrial) {
      this.#options.deliverAlone(event, done);
    } else {
      this.#options.planner.plan(event);
      this.#options.deliver(event, done);
    }
  }

  #finish(event: ClaimedEvent, outcome: EventOutcome): void {
    if (outcome.kind === 'delivered') {
      this.#settle(event, outcome);
      if (event.key !== null) this.#advance(event.key);
      return;
    }
    if (outcome.kind === 'unavailable') {
      this.#shelve(event, outcome);
      return;
    }
    // Also for a dead letter: until that is settled, a crash would requeue the event behind its followers.
    const delayMs = this.#return(event, outcome);
    const queue = this.#queues.get(event.key);
    if (!queue || event.key === null) return;
    this.#queues.delete(event.key);
    const followers = this.#notBegun(event.key, queue);
    if (queue.waits) this.#fronts.removeStartableOf(event.key);
    // Due together with the event they wait for, so that the whole key continues together.
    this.#returnAll(followers, delayMs === undefined ? released : { kind: 'released', delayMs });
  }

  /** The events of a key behind those that are in flight. Of a run, some that may start may not have yet. */
  #notBegun(key: string, queue = this.#queues.get(key)): ClaimedEvent[] {
    if (!queue) return [];
    return [...(queue.waits ? this.#fronts.startableOf(key) : []), ...queue.behind];
  }

  #shelve(event: ClaimedEvent, outcome: EventOutcome & { kind: 'unavailable' }): void {
    if (event.key !== null) {
      this.#options.decisions.shelving(event.key, event.seq, outcome.waitsFor);
      for (const follower of this.#notBegun(event.key)) mayNotPass(follower, outcome.waitsFor);
    }
    this.#settle(event, outcome);
    if (event.key !== null) this.#advance(event.key);
  }

  #advance(key: string): void {
    const queue = this.#queues.get(key);
    if (!queue) return;
    queue.advance(this.#now());
    this.#lead(queue);
    if (queue.front === 0) this.#queues.delete(key);
  }
}
