import { isUnreadable } from '../../database/database-error.ts';
import { PostcommitError } from '../../errors.ts';
import type { LoadedPayload } from '../../outbox/delivering/load-payload.ts';
import { causeText } from '../../telemetry/error-text.ts';
import type { PlannedEvent } from '../deliver/planner.ts';
import type { ClaimedEvent } from '../event/claimed-event.ts';
import { type EventOutcome, failedEvent, rejectedEvent } from '../event/outcome.ts';
import { countedLoadsMax, loadFailuresMax, loadStuckAfterMs, smallPayloadFraction } from './tuning.ts';

export interface PayloadLoaderOptions {
  /** Bytes of loaded payloads at once. */
  inFlightBytesMax: number;
  /** The largest payload that is loaded at all. */
  loadBytesMax: number;
  load: (seq: string, bytesMax: number) => Promise<LoadedPayload | undefined>;
  now?: () => number;
}

/** An event whose payload is being loaded, or is kept until its outcome is known. */
export interface LoadableEvent extends PlannedEvent {
  load?: PayloadLoad | undefined;
}

/** One payload: waiting to be loaded, being loaded, or loaded and not yet released. */
export interface PayloadLoad {
  event: LoadableEvent;
  /** Called once, with the outcome if the payload could not be loaded. */
  done: (failure: EventOutcome | undefined) => void;
  /** Its size, or the least it can be, once the server was asked. */
  bytes: number;
  pool: BytePool | undefined;
  isLoaded: boolean;
  /** Whether the headers came with the payload. */
  hasHeaders: boolean;
}

/** A part of the budget. Loads of one pool are done in order. */
interface BytePool {
  bytesMax: number;
  inUse: number;
  waiting: PayloadLoad[];
}

/**
 * Loads payloads, and headers, that are too large to come with their claim: one at a time, within a budget of bytes. A payload
 * counts against the budget until its delivery has ended.
 *
 * Half of the budget is for small payloads and half for large ones, each in order of arrival. Large deliveries that hang then
 * delay other large ones only, and small ones cannot keep a large one waiting forever: they use its half only while no large
 * one waits. A payload that is larger than its half is loaded when that half is empty.
 */
export class PayloadLoader {
  readonly #options: PayloadLoaderOptions;
  readonly #now: () => number;
  readonly #small: BytePool;
  readonly #large: BytePool;
  readonly #smallBytesMax: number;
  /** Loads of unknown size. */
  #unsized: PayloadLoad[] = [];
  readonly #loads = new Set<PayloadLoad>();
  #isBusy = false;
  /** Failed loads in a row, by seq. */
  readonly #failures = new Map<string, number>();
  #movedAt = 0;

  constructor(options: PayloadLoaderOptions) {
    this.#options = options;
    this.#now = options.now ?? (() => performance.now());
    const bytesMax = Math.floor(options.inFlightBytesMax / 2);
    this.#small = { bytesMax, inUse: 0, waiting: [] };
    this.#large = { bytesMax, inUse: 0, waiting: [] };
    this.#smallBytesMax = Math.floor(options.inFlightBytesMax * smallPayloadFraction);
  }

  /** Bytes of the payloads that are loaded and not yet released. */
  get bytes(): number {
    return this.#small.inUse + this.#large.inUse;
  }

  /** How many loads wait behind deliveries that do not end, or behind a transfer that takes long; `max` at the most. */
  stuck(max: number): number {
    const waiting = Math.min(max, this.#waiting);
    return waiting > 0 && this.#now() - this.#movedAt > loadStuckAfterMs ? waiting : 0;
  }

  /**
   * Sets the event's `payloadJson`, and `headersJson` if that was left out, or calls back with the outcome of the event
   * instead.
   */
  load(event: LoadableEvent, done: (failure: EventOutcome | undefined) => void): void {
    const load: PayloadLoad = { event, done, bytes: 0, pool: undefined, isLoaded: false, hasHeaders: false };
    event.load = load;
    if (this.#waiting === 0) this.#movedAt = this.#now();
    this.#loads.add(load);
    this.#unsized.push(load);
    this.#pump();
  }

  /** The outcome of the event is known: drops its payload, or the load if it is still waiting. */
  release(event: LoadableEvent): void {
    const { load } = event;
    if (load === undefined) return;
    event.load = undefined;
    event.payloadJson = undefined;
    if (load.hasHeaders) event.headersJson = '{}'; // As it was claimed: EventBuffer subtracts the same length that it added.
    event.plan = undefined;
    if (!this.#loads.delete(load)) return;
    if (load.isLoaded && load.pool) load.pool.inUse -= load.bytes;
    else this.#unqueue(load);
    this.#movedAt = this.#now();
    this.#pump();
  }

  /**
   * The lease is lost: drops every load, and tells those that wait for one. Deliveries in flight are abandoned and no longer count.
   */
  forget(): void {
    const unloaded = [...this.#loads].filter(({ isLoaded }) => !isLoaded);
    this.#loads.clear();
    this.#unsized = [];
    for (const pool of [this.#small, this.#large]) {
      pool.waiting = [];
      pool.inUse = 0;
    }
    for (const { event, done } of unloaded) {
      event.load = undefined;
      done({ kind: 'released', done: event.done });
    }
  }

  get #waiting(): number {
    return this.#unsized.length + this.#small.waiting.length + this.#large.waiting.length;
  }

  #unqueue(load: PayloadLoad): void {
    for (const queue of [this.#unsized, this.#small.waiting, this.#large.waiting]) {
      const at = queue.indexOf(load);
      if (at !== -1) queue.splice(at, 1);
    }
  }

  #pump(): void {
    if (this.#isBusy) return;
    const next = this.#next();
    if (next === undefined) return;
    this.#isBusy = true;
    void this.#run(next.load, next.bytesMax).finally(() => {
      this.#isBusy = false;
      this.#movedAt = this.#now();
      this.#pump();
    });
  }

  /** What can be loaded now, and how large it may be. */
  #next(): { load: PayloadLoad; bytesMax: number } | undefined {
    for (const pool of [this.#small, this.#large]) {
      const first = pool.waiting[0];
      const bytesMax = this.#room(pool);
      if (first === undefined || bytesMax < first.bytes) continue;
      pool.waiting.shift();
      return { load: first, bytesMax };
    }
    const bytesMax = Math.max(this.#roomForNew(this.#small), this.#roomForNew(this.#large));
    const load = bytesMax > 0 ? this.#unsized.shift() : undefined;
    return load && { load, bytesMax };
  }

  /** The largest payload that fits into a pool now. */
  #room(pool: BytePool): number {
    const { loadBytesMax } = this.#options;
    if (pool === this.#large && pool.inUse === 0) return loadBytesMax;
    const sizeMax = pool === this.#small ? this.#smallBytesMax : loadBytesMax;
    return Math.max(0, Math.min(pool.bytesMax - pool.inUse, sizeMax, loadBytesMax));
  }

  #roomForNew(pool: BytePool): number {
    return pool.waiting.length > 0 ? 0 : this.#room(pool);
  }

  async #run(load: PayloadLoad, bytesMax: number): Promise<void> {
    let payload: LoadedPayload | undefined;
    try {
      payload = await this.#options.load(load.event.seq, bytesMax);
    } catch (error) {
      this.#end(load, this.#failed(load.event, error));
      return;
    }
    if (!this.#loads.has(load)) return; // Released, or the lease was lost meanwhile.
    this.#failures.delete(load.event.seq);
    if (payload === undefined) this.#end(load, { kind: 'released', done: load.event.done });
    else if (payload.json !== undefined) this.#take(load, payload.json, payload);
    else if (payload.bytes > this.#options.loadBytesMax) this.#end(load, this.#tooLarge(load.event, payload.bytes));
    else this.#wait(load, payload.bytes);
  }

  #take(load: PayloadLoad, json: string, { headersJson, bytes }: LoadedPayload): void {
    const pool = load.pool ?? (bytes <= this.#roomForNew(this.#small) ? this.#small : this.#large);
    pool.inUse += bytes;
    load.pool = pool;
    load.bytes = bytes;
    load.isLoaded = true;
    load.event.payloadJson = json;
    load.hasHeaders = headersJson !== undefined;
    if (headersJson !== undefined) load.event.headersJson = headersJson;
    load.done(undefined);
  }

  /** It did not fit, and its size is known now. */
  #wait(load: PayloadLoad, bytes: number): void {
    const pool = bytes <= this.#smallBytesMax ? this.#small : this.#large;
    if (load.pool === pool) pool.waiting.unshift(load);
    else pool.waiting.push(load);
    load.pool = pool;
    load.bytes = bytes;
  }

  #end(load: PayloadLoad, failure: EventOutcome): void {
    if (!this.#loads.delete(load)) return;
    load.event.load = undefined;
    load.done(failure);
  }

  #failed(event: ClaimedEvent, error: unknown): EventOutcome {
    if (isUnreadable(error)) {
      this.#failures.delete(event.seq);
      const detail = `PostgreSQL reports: ${causeText(error)}`;
      return rejectedEvent(event.done, new PostcommitError('POSTCOMMIT_E_PAYLOAD_UNREADABLE', detail));
    }
    const failures = (this.#failures.get(event.seq) ?? 0) + 1;
    this.#failures.delete(event.seq);
    if (failures < loadFailuresMax) {
      const oldest = this.#failures.size >= countedLoadsMax ? this.#failures.keys().next().value : undefined;
      if (oldest !== undefined) this.#failures.delete(oldest);
      this.#failures.set(event.seq, failures);
      return { kind: 'released', done: event.done };
    }
    const detail = `${failures} loads in a row failed, the last one with: ${causeText(error)}`;
    return failedEvent(event.done, new PostcommitError('POSTCOMMIT_E_PAYLOAD_NOT_LOADED', detail));
  }

  #tooLarge(event: ClaimedEvent, bytes: number): EventOutcome {
    const { loadBytesMax } = this.#options;
    const detail = `It has at least ${bytes} bytes as text, and loadBytesMax is ${loadBytesMax}.`;
    return rejectedEvent(event.done, new PostcommitError('POSTCOMMIT_E_PAYLOAD_OVER_LOAD_LIMIT', detail));
  }
}
