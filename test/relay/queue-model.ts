import { HandlerLimiter } from '../../src/relay/deliver/handler-limiter.ts';
import type { LimitedHandler } from '../../src/relay/deliver/handler-options.ts';
import { Dispatcher } from '../../src/relay/dispatch/dispatcher.ts';
import type { ClaimedEvent } from '../../src/relay/event/claimed-event.ts';
import type { EventOutcome } from '../../src/relay/event/outcome.ts';
import { ClaimHistory } from '../../src/relay/lane/claim-history.ts';

interface QueuedEvent {
  seq: number;
  key: string | null;
  queue: string;
  /** Of which lease it is, 0 for none. */
  lease: number;
  dead: boolean;
  /** Whether it was shelved, and so has been everywhere but at `x`. */
  onlyX: boolean;
}

interface Snapshot {
  claimNumber: number;
  queue: string;
  lease: number;
  limit: number;
  except: Set<string>;
  /** What the claim sees, and what is on the shelf then; `undefined` until it is executed. */
  seen: Map<number, QueuedEvent> | undefined;
  shelf: QueuedEvent[];
  claimed: QueuedEvent[] | undefined;
}

interface Delivery {
  event: ClaimedEvent;
  lease: number;
  done: (outcome: EventOutcome) => void;
}

const queueName = (n: number) => (n === 0 ? 'default' : `q${n}`);

export interface ModelOptions {
  /** Of each queue. */
  inFlightMax: number;
  bufferTarget: number;
  /** How many events of the key `a` may be under way at once. */
  runMax?: number;
  /** Every event whose seq is a multiple of this comes without a payload. */
  loadEvery?: number;
  /** How many events with another key than `a` may be under way at once: their handler has this limit. */
  limitedMax?: number | undefined;
  /** How many queues there are. Claims are made from each in turn. */
  queues?: number;
}

/**
 * The dispatcher between a queue that behaves like the database and deliveries that end whenever the test says: claims
 * see a snapshot, lock rows later and are answered later still; outcomes are written some time after they are known
 * and confirmed later. Checks at the start of each delivery that it may begin.
 *
 * Every event goes to two targets. One of them, `x`, may be down: then the event waits for it on the shelf. Arrivals at
 * `x` must be in order as well.
 */
export class QueueModel {
  readonly dispatcher: Dispatcher;
  readonly #history = new ClaimHistory();
  readonly #options: ModelOptions;
  readonly #queues: string[];
  readonly #queue = new Map<number, QueuedEvent>();
  #deliveries: Delivery[] = [];
  /** Payloads that are being loaded. */
  #loads: { event: ClaimedEvent; done: (failure: EventOutcome | undefined) => void }[] = [];
  /** Outcomes that are known and not yet written. */
  #outcomes: { event: ClaimedEvent; outcome: EventOutcome }[] = [];
  /** Written, not yet confirmed. */
  #unconfirmed: { key: string | null; as: 'returned' | 'shelved' }[] = [];
  readonly #shelf = new Map<number, QueuedEvent>();
  /** All that has ever arrived at `x`. */
  readonly #arrivedAtX = new Set<number>();
  /** Delivered under the present lease, perhaps not yet written. */
  readonly #delivered = new Set<number>();
  /** Accepted under the present lease and without an outcome. */
  readonly #open = new Set<ClaimedEvent>();
  #claim: Snapshot | undefined;
  #lease = 1;
  #lastSeq = 0;
  #now = 1;
  #stopped = false;
  readonly #limiter: HandlerLimiter;
  readonly #handler: LimitedHandler;
  violations: string[] = [];

  constructor(options: ModelOptions) {
    this.#options = options;
    this.#limiter = new HandlerLimiter({ inFlightMax: options.limitedMax });
    this.#handler = { limiter: this.#limiter, batch: undefined };
    this.#queues = Array.from({ length: options.queues ?? 1 }, (_, n) => queueName(n));
    this.dispatcher = new Dispatcher({
      slots: new Map(this.#queues.map((queue) => [queue, options.inFlightMax])),
      bufferTarget: () => options.bufferTarget,
      now: () => this.#now,
      decisions: this.#history,
      planner: {
        plansAhead: true,
        plan: () => {},
        takesSlot: () => true,
        limitedHandlerOf:
          options.limitedMax === undefined ? undefined : ({ key }) => (key === 'a' ? undefined : this.#handler),
        runMax: (previous, next) =>
          next.key === 'a' && previous.shelved.length + next.shelved.length === 0 ? (options.runMax ?? 1) : 1,
      },
      payloads: { load: (event, done) => void this.#loads.push({ event, done }), release: () => {} },
      mayStart: () => true,
      deliver: (event, done) => this.#begin(event, done),
      deliverAlone: (event, done) => this.#begin(event, done),
      settle: (event, outcome) => this.#take(event, outcome),
    });
  }

  get undelivered(): number {
    return [...this.#queue.values()].filter(({ dead }) => !dead).length + this.#shelf.size;
  }

  get leased(): number {
    return [...this.#queue.values()].filter(({ lease }) => lease === this.#lease).length;
  }

  get open(): number {
    return this.#open.size;
  }

  emit(key: string | null, queueNumber = 0): void {
    const seq = ++this.#lastSeq;
    const queue = queueName(queueNumber % this.#queues.length);
    this.#queue.set(seq, { seq, key, queue, lease: 0, dead: false, onlyX: false });
  }

  /** The next step of the claim in flight, or a new one. */
  stepClaim(limit: number): void {
    if (this.#claim === undefined) this.#sendClaim(limit);
    else if (this.#claim.seen === undefined) {
      this.#claim.seen = new Map([...this.#queue].map(([seq, e]) => [seq, { ...e }]));
      this.#claim.shelf = [...this.#shelf.values()];
    } else if (this.#claim.claimed === undefined) this.#executeClaim(this.#claim, this.#claim.seen);
    else this.#answerClaim(this.#claim);
  }

  /** Ends a delivery: of a key the first that is under way. Those behind it go with it if it fails. */
  finish(pick: number, kind: EventOutcome['kind']): void {
    const picked = this.#deliveries[pick % this.#deliveries.length];
    if (picked === undefined) return;
    const ofKey = ({ event, lease }: Delivery) =>
      event === picked.event || (event.key !== null && event.key === picked.event.key && lease === picked.lease);
    const run = this.#deliveries.filter(ofKey).sort((a, b) => Number(a.event.seq) - Number(b.event.seq));
    const ended = kind === 'delivered' ? run.slice(0, 1) : run;
    for (const [index, delivery] of ended.entries()) {
      this.#deliveries.splice(this.#deliveries.indexOf(delivery), 1);
      const behind = kind === 'unavailable' || index === 0 ? kind : 'released';
      this.#end(delivery, behind === 'delivered' && delivery.event.shelved.includes('x') ? 'unavailable' : behind);
    }
  }

  /** Ends the first delivery of a queue. */
  finishOf(queue: string): void {
    const index = this.#deliveries.findIndex(({ event }) => event.queue === queue);
    if (index !== -1) this.finish(index, 'delivered');
  }

  /** Ends a load. Loads of an earlier lease end too, without effect. */
  finishLoad(pick: number, kind: 'delivered' | 'released' | 'failed' | 'rejected'): void {
    const [load] = this.#loads.splice(pick % Math.max(1, this.#loads.length), 1);
    if (load === undefined) return;
    const errors = [{ target: null, code: '', error: 'not loaded' }];
    if (kind === 'delivered') load.event.payloadJson = 'null';
    if (kind === 'delivered') load.done(undefined);
    else if (kind === 'released') load.done({ kind, done: [] });
    else if (kind === 'failed') load.done({ kind, done: [], errors });
    else load.done({ kind, reason: 'rejected', done: [], errors });
  }

  #end({ event, lease, done }: Delivery, kind: EventOutcome['kind']): void {
    const seq = Number(event.seq);
    if (event.key !== 'a') this.#limiter.end(1);
    if (lease === this.#lease && (kind === 'delivered' || kind === 'unavailable')) this.#delivered.add(seq);
    if (lease === this.#lease && kind === 'delivered') this.#arriveAtX(seq, event.key);
    const errors = [{ target: null, code: '', error: 'failed' }];
    if (kind === 'delivered') done({ kind, targets: ['t'] });
    else if (kind === 'unavailable') done({ kind, done: ['y'], waitsFor: ['x'] });
    else if (kind === 'released') done({ kind, done: [] });
    else if (kind === 'failed') done({ kind, done: [], errors });
    else done({ kind, reason: 'rejected', done: [], errors });
  }

  #arriveAtX(seq: number, key: string | null): void {
    this.#arrivedAtX.add(seq);
    if (key === null) return;
    for (const other of [...this.#queue.values(), ...this.#shelf.values()]) {
      if (other.key !== key || other.seq >= seq || other.dead || this.#arrivedAtX.has(other.seq)) continue;
      this.violations.push(`${seq} arrived at x before ${other.seq} of ${key}`);
    }
  }

  /** Takes the first events from the shelf, in one transaction. */
  unshelve(count: number): void {
    const first = [...this.#shelf.values()].sort((a, b) => a.seq - b.seq).slice(0, count);
    for (const event of first) {
      this.#shelf.delete(event.seq);
      this.#queue.set(event.seq, event);
    }
    const inOrder = [...this.#queue].sort(([a], [b]) => a - b);
    this.#queue.clear();
    for (const [seq, event] of inOrder) this.#queue.set(seq, event);
  }

  /** Writes the oldest outcomes, in one transaction. */
  write(count: number): void {
    for (const { event, outcome } of this.#outcomes.splice(0, count)) {
      const queued = this.#queue.get(Number(event.seq));
      if (queued === undefined || queued.lease !== this.#lease) {
        this.violations.push(`the outcome of ${event.seq} was fenced`);
        continue;
      }
      queued.lease = 0;
      if (outcome.kind === 'delivered') {
        this.#queue.delete(queued.seq);
        continue;
      }
      if (outcome.kind === 'unavailable') {
        this.#queue.delete(queued.seq);
        this.#shelf.set(queued.seq, queued);
        queued.onlyX = true;
        this.#delivered.delete(queued.seq);
        this.#unconfirmed.push({ key: event.key, as: 'shelved' });
        continue;
      }
      if (outcome.kind === 'rejected') queued.dead = true;
      this.#unconfirmed.push({ key: event.key, as: 'returned' });
    }
  }

  confirm(count: number): void {
    for (const { key, as } of this.#unconfirmed.splice(0, count)) {
      if (key !== null) this.#history.settled(key, as);
    }
  }

  /** As for an event that is cancelled: it, and those of its key behind it, go back unless it has started. */
  release(pick: number): void {
    const event = [...this.#open][pick % Math.max(1, this.#open.size)];
    if (event === undefined) return;
    const isUnderWay = this.#deliveries.some((delivery) => delivery.event === event);
    if (this.dispatcher.release(event) && isUnderWay) this.violations.push(`${event.seq} was released while under way`);
  }

  releaseExcess(passMs: number): void {
    this.#now += passMs;
    for (const queue of this.#queues) this.dispatcher.releaseExcess(queue);
  }

  loseLease(): void {
    this.dispatcher.forget();
    this.#history.clear();
    this.#lease++;
    this.#outcomes = [];
    this.#unconfirmed = [];
    this.#delivered.clear();
    this.#open.clear();
  }

  stop(): void {
    this.#stopped = true;
    this.dispatcher.stop();
  }

  /** Lets everything succeed. Returns whether the relay holds nothing and the queue is empty afterwards. */
  settle(): boolean {
    for (let round = 0; round < 10_000; round++) {
      this.confirm(this.#unconfirmed.length);
      this.write(this.#outcomes.length);
      this.finish(round, 'delivered');
      this.finishLoad(round, 'delivered');
      // Once in every round, in step with the claims, events of one key could be shelved and taken back for ever: those
      // taken back would always meet an earlier one on the shelf. A relay takes them back at irregular times.
      if (this.#open.size === 0) this.unshelve(2);
      if (!this.#stopped || this.#claim !== undefined) this.stepClaim(3);
      const idle =
        this.#deliveries.length + this.#loads.length === 0 &&
        this.#outcomes.length === 0 &&
        this.#unconfirmed.length === 0;
      if (idle && this.#claim === undefined && (this.#stopped || this.undelivered === 0)) return true;
    }
    return false;
  }

  #sendClaim(limit: number): void {
    if (this.#stopped) return;
    const queue = queueName(this.#history.claims % this.#queues.length);
    const { inFlight, waiting } = this.dispatcher.of(queue);
    const room = this.#options.bufferTarget - inFlight - waiting - this.#outcomes.length;
    const except = new Set([...this.dispatcher.releaseExcess(queue), ...this.#history.returnedKeys()]);
    const claimNumber = this.#history.sent();
    const wanted = Math.min(limit, room);
    this.#claim = {
      claimNumber,
      queue,
      lease: this.#lease,
      limit: wanted,
      except,
      seen: undefined,
      shelf: [],
      claimed: undefined,
    };
  }

  /** As claim.ts does it: rows by their latest state, predecessors by the snapshot. */
  #executeClaim(claim: Snapshot, seen: Map<number, QueuedEvent>): void {
    const isFree = (lease: number) => lease === 0 || lease < this.#lease;
    const candidates: QueuedEvent[] = [];
    for (const { seq, key, queue } of seen.values()) {
      if (queue !== claim.queue) continue;
      const latest = this.#queue.get(seq);
      if (candidates.length >= claim.limit) break;
      if (!latest || latest.dead || !isFree(latest.lease) || (key !== null && claim.except.has(key))) continue;
      candidates.push(latest);
    }
    const chosen = new Set(candidates.map(({ seq }) => seq));
    const walls = new Set<string>();
    claim.claimed = [];
    for (const event of candidates) {
      const { seq, key } = event;
      const before =
        key === null ? undefined : [...seen.values()].findLast((e) => e.key === key && e.seq < seq && !e.dead);
      if (key !== null && before && !chosen.has(before.seq) && before.lease !== claim.lease) walls.add(key);
      if (key !== null && walls.has(key)) continue;
      event.lease = claim.lease;
      claim.claimed.push(event);
    }
  }

  #answerClaim(claim: Snapshot): void {
    this.#claim = undefined;
    if (claim.lease === this.#lease) {
      const batch = (claim.claimed ?? []).map(({ seq, key }) => ({
        seq: String(seq),
        key,
        queue: claim.queue,
        payloadJson: seq % (this.#options.loadEvery ?? Number.POSITIVE_INFINITY) === 0 ? undefined : 'null',
        shelved: claim.shelf.some((other) => key !== null && other.key === key && other.seq < seq) ? ['x'] : [],
      })) as readonly Partial<ClaimedEvent>[] as ClaimedEvent[];
      for (const event of batch) this.#open.add(event);
      this.dispatcher.accept(batch);
    }
    this.#history.answered(claim.claimNumber);
  }

  #begin(event: ClaimedEvent, done: (outcome: EventOutcome) => void): void {
    const seq = Number(event.seq);
    this.#deliveries.push({ event, lease: this.#lease, done });
    if (event.payloadJson === undefined) this.violations.push(`${seq} began without its payload`);
    const ofQueue = this.#deliveries.filter((delivery) => delivery.event.queue === event.queue);
    if (ofQueue.length > this.#options.inFlightMax) this.violations.push(`${seq} is one too many in flight`);
    if (this.#stopped) this.violations.push(`${seq} began after stop`);
    if (event.key !== 'a') this.#limiter.begin(this.#now);
    const limited = this.#deliveries.filter((delivery) => delivery.event.key !== 'a').length;
    if (event.key !== 'a' && limited > (this.#options.limitedMax ?? limited)) {
      this.violations.push(`${seq} is one too many for its handler`);
    }
    if (event.key === null) return;
    for (const other of this.#queue.values()) {
      if (other.key !== event.key || other.seq >= seq || other.dead) continue;
      if (other.onlyX && event.shelved.includes('x')) continue; // It cannot pass that one anywhere.
      const isAhead = this.#deliveries.some((d) => d.lease === this.#lease && Number(d.event.seq) === other.seq);
      if (!this.#delivered.has(other.seq) && !isAhead)
        this.violations.push(`${seq} began before ${other.seq} of ${event.key}`);
    }
    const together = this.#deliveries.filter((d) => d.lease === this.#lease && d.event.key === event.key);
    if (together.length > (event.key === 'a' ? (this.#options.runMax ?? 1) : 1))
      this.violations.push(`${together.length} of ${event.key} at once`);
  }

  #take(event: ClaimedEvent, outcome: EventOutcome): undefined {
    if (!this.#open.delete(event)) this.violations.push(`a second outcome of ${event.seq}`);
    this.#outcomes.push({ event, outcome });
  }
}
