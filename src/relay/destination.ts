import { PostcommitError } from '../errors.ts';
import type { Message, Publisher, PublishOutcome } from '../publishers/publisher.ts';
import { errorText } from '../telemetry/error-text.ts';
import type { Serialized, Serializer } from '../wire/serializer.ts';
import { Batch } from './batch.ts';
import type { DeliveredEvent } from './delivered-event.ts';
import { isReject } from './handlers.ts';
import { toMessage } from './message.ts';
import type { Leg } from './route.ts';

/** What came of sending one event to one destination. */
export type SendResult =
  | { kind: 'ok' }
  | { kind: 'retry'; error: unknown; retryAfterMs?: number }
  | { kind: 'reject'; error: unknown }
  /** The destination is away, or an earlier event of the key waits for it: no attempt counts. */
  | { kind: 'waits' }
  /** Not sent, and not its fault. */
  | { kind: 'released' };

export interface DestinationOptions {
  publisher: Publisher;
  serializer: Serializer;
  publishTimeoutMs: number;
  retryAfterMaxMs: number;
  /** Whether something else is delivered by this relay too, which must not wait for this destination. */
  hasNeighbours: boolean;
  /** How many events it may hold back while it is slow. */
  bufferMax: () => number;
  /** Whether it may be sent to at the moment. */
  isUp: () => boolean;
  /** Whether it is known to take events. If not, one is sent to find out. */
  isProven: () => boolean;
  /** A batch could not be delivered because the destination is away. */
  onUnavailable: (reason: string, retryAfterMs: number) => void;
  /** Something got through. */
  onProven: () => void;
}

interface Entry {
  key: string | null;
  event: DeliveredEvent;
  leg: Leg;
  done: (result: SendResult) => void;
  /** Written when its turn comes: until then the event is all that is kept of it. */
  message: Message | undefined;
  /** Its serializer takes its time. */
  isBeingWritten: boolean;
  failure: SendResult | undefined;
}

/** With neighbours: how long a batch may take before what waits behind it is put aside instead. */
const stalledAfterMs = 2_000;
/** With neighbours: a batch that takes longer makes the destination a slow one, which may hold a part of the buffer only. */
const slowAfterMs = 250;
/** How many entries of busy keys are skipped to fill a batch. */
const skipMax = 4_096;

const sent: SendResult = { kind: 'ok' };
const waits: SendResult = { kind: 'waits' };
const released: SendResult = { kind: 'released' };

/**
 * Sends events to one destination in batches as large as the publisher takes them: whatever gathers while its batches
 * are under way goes into the next. No key is in two batches at once, and what is behind a failed event of its key is
 * not sent, so the order per key is kept (G4). When the destination is away, all that is waiting is handed back (G6).
 *
 * How much gathers here is bounded by what the relay holds.
 */
export class Destination {
  readonly #options: DestinationOptions;
  #buffer: Entry[] = [];
  readonly #busyKeys = new Set<string>();
  readonly #batches = new Set<Batch>();
  #scheduled = false;
  #stopped = false;
  #stalled = 0;
  #hasUnwritable = false;

  constructor(options: DestinationOptions) {
    this.#options = options;
  }

  /** Events of one key that may be under way at once. */
  get runMax(): number {
    const { keyRuns, batchSizeMax } = this.#options.publisher.capabilities;
    return keyRuns ? batchSizeMax : 1;
  }

  /** Whether it neither answers nor is known to be away. */
  get stalled(): boolean {
    return this.#stalled > 0;
  }

  /** Events that it takes its time with, for who counts what the relay can do something about. */
  get stuck(): number {
    if (!this.#options.hasNeighbours) return 0;
    let count = 0;
    for (const batch of this.#batches) if (batch.ageMs > slowAfterMs) count += batch.size;
    return count;
  }

  /** How many events it could use: no limit of its own unless it is slow. */
  get room(): number {
    if (!this.#isSlow()) return Number.POSITIVE_INFINITY;
    return Math.max(0, this.#options.bufferMax() - this.#buffer.length);
  }

  /** Calls back exactly once. Sends of one key are to be made in order. */
  send(event: DeliveredEvent, leg: Leg, key: string | null, done: (result: SendResult) => void): void {
    if (this.#stopped) {
      done(released);
    } else if (!this.#options.isUp() || this.stalled || this.room === 0) {
      done(waits);
    } else {
      const entry = { key, event, leg, done, message: undefined, isBeingWritten: false, failure: undefined };
      this.#buffer.push(entry);
      this.#schedule();
    }
  }

  /** Sends nothing more; what has not begun goes back at once. */
  stop(): void {
    this.#stopped = true;
    this.#flush(released);
  }

  /** Gives up what is under way. What still arrives in time counts. */
  abandon(reason: Error): void {
    this.#flush(released);
    for (const batch of this.#batches) batch.abandon(reason);
  }

  /** The destination is away: nothing that waits here is sent. */
  putAside(): void {
    this.#flush(waits);
  }

  #isSlow(): boolean {
    if (!this.#options.hasNeighbours) return false;
    for (const batch of this.#batches) if (batch.ageMs > slowAfterMs) return true;
    return false;
  }

  /** One turn of the event loop later, so that what arrives together is sent together. */
  #schedule(): void {
    if (this.#scheduled) return;
    this.#scheduled = true;
    setImmediate(() => {
      this.#scheduled = false;
      this.#sendBatches();
    });
  }

  #sendBatches(): void {
    while (this.#batches.size < this.#batchesMax() && this.#buffer.length > 0 && this.#options.isUp()) {
      const entries = this.#nextEntries();
      const wasSent = entries.length > 0;
      if (wasSent) this.#sendBatch(entries);
      if (!this.#giveUpFailed() && !wasSent) return;
    }
  }

  #batchesMax(): number {
    return this.#options.isProven() ? this.#options.publisher.capabilities.batchesInFlightMax : 1;
  }

  /** The first entries that fit, without those whose key is in another batch, or is not ready to be sent. */
  #nextEntries(): Entry[] {
    const { batchBytesMax, keyRuns } = this.#options.publisher.capabilities;
    const batchSizeMax = this.#options.isProven() ? this.#options.publisher.capabilities.batchSizeMax : 1;
    const chosen: Entry[] = [];
    const skipped: Entry[] = [];
    const own = new Set<string>();
    const held = new Set<string>();
    let bytes = 0;
    let at = 0;
    for (; at < this.#buffer.length && chosen.length < batchSizeMax && skipped.length < skipMax; at++) {
      const entry = this.#buffer[at] as Entry;
      const { key } = entry;
      const isHeld = key !== null && (this.#busyKeys.has(key) || held.has(key) || (!keyRuns && own.has(key)));
      const message = isHeld ? undefined : this.#write(entry);
      if (message === undefined) {
        skipped.push(entry);
        if (key !== null) held.add(key);
        continue;
      }
      if (chosen.length > 0 && bytes + message.bytes > batchBytesMax) break;
      bytes += message.bytes;
      chosen.push(entry);
      if (key !== null) own.add(key);
    }
    this.#buffer = skipped.length > 0 ? [...skipped, ...this.#buffer.slice(at)] : this.#buffer.slice(at);
    for (const key of own) this.#busyKeys.add(key);
    return chosen;
  }

  /** The message of an entry; `undefined` if it is not there yet, or cannot be made. */
  #write(entry: Entry): Message | undefined {
    if (entry.message !== undefined || entry.isBeingWritten || entry.failure !== undefined) return entry.message;
    const { event, leg } = entry;
    const { serializer, publisher } = this.#options;
    try {
      const serialized = serializer.serialize(event, publisher.capabilities);
      if ('then' in serialized) {
        entry.isBeingWritten = true;
        void this.#writeLater(entry, serialized);
      } else {
        entry.message = toMessage(event, leg, serialized);
      }
    } catch (error) {
      this.#failedToWrite(entry, error);
    }
    return entry.message;
  }

  async #writeLater(entry: Entry, serialized: Promise<Serialized>): Promise<void> {
    try {
      entry.message = toMessage(entry.event, entry.leg, await this.#inTime(serialized));
    } catch (error) {
      this.#failedToWrite(entry, error);
    }
    entry.isBeingWritten = false;
    this.#schedule();
  }

  async #inTime(serialized: Promise<Serialized>): Promise<Serialized> {
    const { publishTimeoutMs } = this.#options;
    let timer: NodeJS.Timeout | undefined;
    const late = new Promise<never>((_, reject) => {
      timer = setTimeout(() => reject(new Error(`no answer within ${publishTimeoutMs} ms`)), publishTimeoutMs);
    });
    return await Promise.race([serialized, late]).finally(() => clearTimeout(timer));
  }

  #failedToWrite(entry: Entry, error: unknown): void {
    entry.failure = serializerFailed(error);
    this.#hasUnwritable = true;
  }

  /** Answers whether there were entries that could not be written. What is behind them with their key goes back. */
  #giveUpFailed(): boolean {
    if (!this.#hasUnwritable) return false;
    this.#hasUnwritable = false;
    const failed = this.#buffer.filter(({ failure }) => failure !== undefined);
    const keys = new Set(failed.map(({ key }) => key).filter((key) => key !== null));
    const gone = this.#take(({ key, failure }) => failure !== undefined || (key !== null && keys.has(key)));
    // Of a key the first that failed; those behind it were not tried.
    const answered = new Set<string>();
    for (const { key, failure, done } of gone) {
      const isFirst = failure !== undefined && (key === null || !answered.has(key));
      if (key !== null) answered.add(key);
      done(isFirst ? failure : released);
    }
    return true;
  }

  #sendBatch(entries: readonly Entry[]): void {
    const { publisher, publishTimeoutMs } = this.#options;
    const messages = entries.map(({ message }) => message as Message);
    const batch = new Batch(publisher, messages, publishTimeoutMs);
    this.#batches.add(batch);
    const watch = this.#options.hasNeighbours ? this.#watch() : undefined;
    void batch.run().then((outcomes) => {
      watch?.end();
      this.#batches.delete(batch);
      for (const { key } of entries) if (key !== null) this.#busyKeys.delete(key);
      if (batch.abandoned) this.#finishAbandoned(entries, outcomes);
      else this.#finish(entries, outcomes);
      // Not at once: to encode a batch may take the client some 20 ms, and the results above are to be on their way to
      // the database by then.
      this.#schedule();
    });
  }

  /** While a batch is under way: what waits behind it steps aside when it takes long, for the sake of the neighbours. */
  #watch(): { end: () => void } {
    let stalled = false;
    const slow = setTimeout(() => this.#handOver(this.#buffer.splice(this.#options.bufferMax()), waits), slowAfterMs);
    const timer = setTimeout(() => {
      stalled = true;
      this.#stalled++;
      this.#flush(waits);
    }, stalledAfterMs);
    return {
      end: () => {
        clearTimeout(slow);
        clearTimeout(timer);
        if (stalled) this.#stalled--;
      },
    };
  }

  #finishAbandoned(entries: readonly Entry[], outcomes: readonly PublishOutcome[]): void {
    for (const [index, { done }] of entries.entries()) done(outcomes[index]?.kind === 'ok' ? sent : released);
  }

  #finish(entries: readonly Entry[], outcomes: readonly PublishOutcome[]): void {
    if (outcomes.every(({ kind }) => kind === 'ok')) {
      this.#options.onProven();
      for (const { done } of entries) done(sent);
      return;
    }
    const away = outcomes.find((outcome) => outcome.kind === 'unavailable');
    // First, so that nothing that the results below set free is sent into the outage.
    if (away)
      this.#options.onUnavailable(
        errorText(away.reason),
        bounded(away.retryAfterMs, this.#options.retryAfterMaxMs) ?? 0,
      );
    else this.#options.onProven();
    const results = this.#results(entries, outcomes);
    const failedKeys = new Set<string>();
    for (const [index, { key }] of entries.entries()) {
      const { kind } = results[index] as SendResult;
      if (key !== null && (kind === 'retry' || kind === 'reject' || kind === 'released')) failedKeys.add(key);
    }
    const behind = failedKeys.size > 0 ? this.#take(({ key }) => key !== null && failedKeys.has(key)) : [];
    for (const [index, { done }] of entries.entries()) done(results[index] as SendResult);
    for (const { done } of behind) done(released);
  }

  /** What is behind a failed event of its key was not tried: it goes back, or waits with it. */
  #results(entries: readonly Entry[], outcomes: readonly PublishOutcome[]): SendResult[] {
    const first = new Map<string, SendResult>();
    // The publisher minds the key of the message, which is the route's choice: several aggregates may share it.
    const firstOfMessageKey = new Map<string, SendResult>();
    return entries.map(({ key, message }, index) => {
      const result = toResult(outcomes[index] as PublishOutcome, this.#options.retryAfterMaxMs);
      if (result.kind === 'ok') return result;
      const messageKey = message?.key ?? null;
      const earlier =
        (key === null ? undefined : first.get(key)) ??
        (messageKey === null || result.kind !== 'retry' ? undefined : firstOfMessageKey.get(messageKey));
      const own = earlier === undefined ? result : earlier.kind === 'waits' ? waits : released;
      if (key !== null && !first.has(key)) first.set(key, own);
      if (messageKey !== null && !firstOfMessageKey.has(messageKey)) firstOfMessageKey.set(messageKey, own);
      return own;
    });
  }

  #flush(result: SendResult): void {
    this.#handOver(this.#buffer.splice(0), result);
  }

  #handOver(entries: readonly Entry[], result: SendResult): void {
    for (const { done } of entries) done(result);
  }

  #take(matches: (entry: Entry) => boolean): Entry[] {
    const taken = this.#buffer.filter(matches);
    if (taken.length > 0) this.#buffer = this.#buffer.filter((entry) => !matches(entry));
    return taken;
  }
}

function toResult(outcome: PublishOutcome, retryAfterMaxMs: number): SendResult {
  switch (outcome.kind) {
    case 'ok':
      return sent;
    case 'unavailable':
      return waits;
    case 'reject':
      return { kind: 'reject', error: new PostcommitError('POSTCOMMIT_E_PUBLISH_REJECTED', outcome.reason) };
    default: {
      if (outcome.notTried === true) return released;
      const error = new PostcommitError('POSTCOMMIT_E_PUBLISH_FAILED', outcome.reason);
      const retryAfterMs = bounded(outcome.retryAfterMs, retryAfterMaxMs);
      return { kind: 'retry', error, ...(retryAfterMs === undefined ? {} : { retryAfterMs }) };
    }
  }
}

/** A publisher may answer anything; PostgreSQL has an end of time. */
function bounded(ms: unknown, maxMs: number): number | undefined {
  return typeof ms === 'number' && ms > 0 ? Math.min(ms, maxMs) : undefined;
}

function serializerFailed(thrown: unknown): SendResult {
  if (isReject(thrown)) return { kind: 'reject', error: thrown };
  const detail = `It said: ${errorText(thrown)}`;
  return { kind: 'retry', error: new PostcommitError('POSTCOMMIT_E_SERIALIZER_FAILED', detail) };
}
