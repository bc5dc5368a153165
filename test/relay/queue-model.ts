import type { Outcome } from '../../src/relay/deliver.ts';
import { Dispatcher, type Held, type Verdict } from '../../src/relay/dispatcher.ts';

interface QueuedEvent {
  seq: number;
  key: string | null;
  /** Of which lease it is, 0 for none. */
  lease: number;
  dead: boolean;
}

interface Snapshot {
  claimNumber: number;
  lease: number;
  limit: number;
  except: Set<string>;
  /** What the claim sees; `undefined` until it is executed. */
  seen: Map<number, QueuedEvent> | undefined;
  claimed: QueuedEvent[] | undefined;
}

interface Delivery {
  held: Held;
  lease: number;
  done: (outcome: Outcome) => void;
}

export interface ModelOptions {
  inFlightMax: number;
  heldMax: number;
}

/**
 * The dispatcher between a queue that behaves like the database and deliveries that end whenever the test says: claims
 * see a snapshot, lock rows later and are answered later still; verdicts are written some time after they were given
 * and confirmed later. Checks at the start of each delivery that it may begin.
 */
export class QueueModel {
  readonly dispatcher: Dispatcher;
  readonly #options: ModelOptions;
  readonly #queue = new Map<number, QueuedEvent>();
  #deliveries: Delivery[] = [];
  /** Verdicts given, not yet written. */
  #verdicts: Verdict[] = [];
  /** Written, not yet confirmed: keys of what was given back. */
  #unconfirmed: (string | null)[] = [];
  /** Delivered under the present lease, perhaps not yet written. */
  readonly #delivered = new Set<number>();
  /** Accepted under the present lease and without a verdict. */
  readonly #open = new Set<Held>();
  #claim: Snapshot | undefined;
  #claimNumber = 0;
  #lease = 1;
  #lastSeq = 0;
  #now = 1;
  #stopped = false;
  violations: string[] = [];

  constructor(options: ModelOptions) {
    this.#options = options;
    this.dispatcher = new Dispatcher({
      inFlightMax: options.inFlightMax,
      holdMax: () => options.heldMax,
      now: () => this.#now,
      deliver: (row, done) => this.#begin(row as Held, done),
      onVerdict: (verdict) => this.#take(verdict),
    });
  }

  get undelivered(): number {
    return [...this.#queue.values()].filter(({ dead }) => !dead).length;
  }

  get leased(): number {
    return [...this.#queue.values()].filter(({ lease }) => lease === this.#lease).length;
  }

  get open(): number {
    return this.#open.size;
  }

  emit(key: string | null): void {
    const seq = ++this.#lastSeq;
    this.#queue.set(seq, { seq, key, lease: 0, dead: false });
  }

  /** The next step of the claim under way, or a new one. */
  stepClaim(limit: number): void {
    if (this.#claim === undefined) this.#sendClaim(limit);
    else if (this.#claim.seen === undefined)
      this.#claim.seen = new Map([...this.#queue].map(([seq, e]) => [seq, { ...e }]));
    else if (this.#claim.claimed === undefined) this.#executeClaim(this.#claim, this.#claim.seen);
    else this.#answerClaim(this.#claim);
  }

  finish(pick: number, kind: Outcome['kind']): void {
    if (this.#deliveries.length === 0) return;
    const [delivery] = this.#deliveries.splice(pick % this.#deliveries.length, 1);
    if (delivery === undefined) return;
    const { held, lease } = delivery;
    if (kind === 'ok' && lease === this.#lease) this.#delivered.add(Number(held.seq));
    const errors = [{ target: null, code: '', error: 'failed' }];
    if (kind === 'ok') delivery.done({ kind, targets: ['t'] });
    else if (kind === 'release') delivery.done({ kind, done: [] });
    else if (kind === 'retry') delivery.done({ kind, done: [], errors });
    else delivery.done({ kind, reason: 'rejected', done: [], errors });
  }

  /** Writes the oldest verdicts down, in one transaction. */
  write(count: number): void {
    for (const { held, outcome } of this.#verdicts.splice(0, count)) {
      const event = this.#queue.get(Number(held.seq));
      if (event === undefined || event.lease !== this.#lease) {
        this.violations.push(`the verdict about ${held.seq} was fenced`);
        continue;
      }
      event.lease = 0;
      if (typeof outcome === 'object' && outcome.kind === 'ok') {
        this.#queue.delete(event.seq);
        continue;
      }
      if (typeof outcome === 'object' && outcome.kind === 'reject') event.dead = true;
      this.#unconfirmed.push(held.key);
    }
  }

  confirm(count: number): void {
    for (const key of this.#unconfirmed.splice(0, count)) {
      if (key !== null) this.dispatcher.confirmGivenBack(key, this.#claimNumber);
    }
  }

  shed(passMs: number): void {
    this.#now += passMs;
    this.dispatcher.shedCrowded();
  }

  loseLease(): void {
    this.dispatcher.forget();
    this.#lease++;
    this.#verdicts = [];
    this.#unconfirmed = [];
    this.#delivered.clear();
    this.#open.clear();
  }

  stop(): void {
    this.#stopped = true;
    this.dispatcher.stop();
  }

  /** Lets everything end well. Answers whether it does: whether nothing is left in the relay's hands, or in the queue. */
  settle(): boolean {
    for (let round = 0; round < 10_000; round++) {
      this.confirm(this.#unconfirmed.length);
      this.write(this.#verdicts.length);
      this.finish(round, 'ok');
      if (!this.#stopped || this.#claim !== undefined) this.stepClaim(3);
      const idle = this.#deliveries.length === 0 && this.#verdicts.length === 0 && this.#unconfirmed.length === 0;
      if (idle && this.#claim === undefined && (this.#stopped || this.undelivered === 0)) return true;
    }
    return false;
  }

  #sendClaim(limit: number): void {
    if (this.#stopped) return;
    const room = this.#options.heldMax - this.dispatcher.inFlight - this.dispatcher.waiting - this.#verdicts.length;
    const except = new Set([...this.dispatcher.shedCrowded(), ...this.dispatcher.brokenKeys()]);
    const claimNumber = ++this.#claimNumber;
    const wanted = Math.min(limit, room);
    this.#claim = { claimNumber, lease: this.#lease, limit: wanted, except, seen: undefined, claimed: undefined };
  }

  /** As claim.ts does it: rows by their latest state, predecessors by the snapshot. */
  #executeClaim(claim: Snapshot, seen: Map<number, QueuedEvent>): void {
    const isFree = (lease: number) => lease === 0 || lease < this.#lease;
    const candidates: QueuedEvent[] = [];
    for (const { seq, key } of seen.values()) {
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
        claimNumber: claim.claimNumber,
      }));
      for (const held of batch as Held[]) this.#open.add(held);
      this.dispatcher.accept(batch as Held[]);
    }
    this.dispatcher.claimsAnswered(claim.claimNumber);
  }

  #begin(held: Held, done: (outcome: Outcome) => void): void {
    const seq = Number(held.seq);
    this.#deliveries.push({ held, lease: this.#lease, done });
    if (this.#deliveries.length > this.#options.inFlightMax) this.violations.push(`${seq} is one too many in flight`);
    if (this.#stopped) this.violations.push(`${seq} began after stop`);
    if (held.key === null) return;
    for (const other of this.#queue.values()) {
      if (other.key !== held.key || other.seq >= seq || other.dead) continue;
      if (!this.#delivered.has(other.seq)) this.violations.push(`${seq} began before ${other.seq} of ${held.key}`);
    }
    const together = this.#deliveries.filter((d) => d.lease === this.#lease && d.held.key === held.key);
    if (together.length > 1) this.violations.push(`${together.length} of ${held.key} at once`);
  }

  #take(verdict: Verdict): void {
    const { held } = verdict;
    if (!this.#open.delete(held)) this.violations.push(`a second verdict about ${held.seq}`);
    this.#verdicts.push(verdict);
  }
}
