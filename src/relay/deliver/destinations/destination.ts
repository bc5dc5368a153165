import type { Message, Publisher, PublishOutcome } from '../../../publishers/publisher.ts';
import type { DeliveredEvent } from '../../../wire/delivered-event.ts';
import type { Serializer } from '../../../wire/serializer.ts';
import { delivered, released, type TargetOutcome, unavailable } from '../../event/outcome.ts';
import { Batch } from './batch.ts';
import { batchResults } from './batch-results.ts';
import { type DestinationPart, DestinationParts, type SendQueue } from './destination-parts.ts';
import type { Leg } from './leg.ts';
import { OutageDetector } from './outage-detector.ts';
import { MessageWriter, type PendingMessage } from './pending-message.ts';
import { skipMax, slowAfterMs, stalledAfterMs } from './tuning.ts';

export interface DestinationOptions {
  publisher: Publisher;
  serializer: Serializer;
  publishTimeoutMs: number;
  retryAfterMaxMs: number;
  /** Whether this relay has other targets, which must not wait for this destination. */
  hasNeighbours: boolean;
  /** How many events it may queue while it is slow. */
  bufferMax: () => number;
  /** Whether events may be sent to it now. */
  isUp: () => boolean;
  /** Whether it is known to accept events. If not, one event is sent as a trial. */
  isProven: () => boolean;
  /** Whether `health()` succeeds. */
  isAlive: () => Promise<boolean>;
  /** A batch could not be delivered because the destination is down. */
  onUnavailable: (reason: string, retryAfterMs: number) => void;
  /** The destination has processed an event: delivered, failed or rejected it. */
  onProven: () => void;
}

const none: ReadonlySet<string> = new Set();
const mainOnly = [undefined];

/**
 * Sends events to one destination in batches as large as the publisher allows: events that arrive while its batches are under
 * way go into the next. No key is in two batches at once, and nothing behind a failed event of its key is sent, so the order
 * per key is kept (G4). When the destination is down, all events queued here are shelved (G6). `DestinationParts` keeps one
 * host or topic from delaying the others, `OutageDetector` keeps one event from stopping them.
 *
 * The relay's buffer bounds how many events are queued here.
 */
export class Destination {
  readonly #options: DestinationOptions;
  readonly #writer: MessageWriter;
  readonly #parts: DestinationParts;
  readonly #outages: OutageDetector;
  /** Messages without a part of their own. */
  readonly #main: SendQueue = { entries: [] };
  readonly #busyKeys = new Set<string>();
  readonly #batches = new Set<Batch>();
  /** Queued messages whose serializer is unavailable, while it is found out whether this is an outage. */
  readonly #unwritable = new Set<PendingMessage>();
  /** Whether the common queue has the next turn, before the parts. */
  #isMainNext = true;
  #scheduled = false;
  #stopped = false;
  #stalled = 0;

  constructor(options: DestinationOptions) {
    this.#options = options;
    this.#writer = new MessageWriter({ ...options, onWritten: () => this.#schedule() });
    this.#outages = new OutageDetector(options, () => this.#schedule());
    this.#parts = new DestinationParts(options.publisher, options.bufferMax);
  }

  /** Events of one key that may be in flight at once. */
  get runMax(): number {
    const { keyRuns, batchSizeMax } = this.#options.publisher.capabilities;
    return keyRuns ? batchSizeMax : 1;
  }

  /** Whether it does not respond and is not known to be down. */
  get stalled(): boolean {
    return this.#stalled > 0;
  }

  /** Events in the buffer that slow batches and parts occupy. */
  get stuck(): number {
    let count = this.#parts.stuck;
    if (!this.#options.hasNeighbours) return count;
    for (const batch of this.#batches) if (!batch.isOfPart && batch.ageMs > slowAfterMs) count += batch.size;
    return count;
  }

  /** How many more events it accepts: no limit of its own unless it is slow. */
  get room(): number {
    if (!this.#isSlow()) return Number.POSITIVE_INFINITY;
    return Math.max(0, this.#options.bufferMax() - this.#main.entries.length);
  }

  /** Calls back exactly once. Events of one key must be sent in order. */
  send(event: DeliveredEvent, leg: Leg, key: string | null, done: (result: TargetOutcome) => void): void {
    if (this.#stopped) {
      done(released);
      return;
    }
    if (!this.#options.isUp()) {
      done(unavailable);
      return;
    }
    const entry: PendingMessage = {
      key,
      event,
      leg,
      done,
      part: this.#parts.nameOf(leg),
      message: undefined,
      isBeingWritten: false,
      failure: undefined,
    };
    const part = this.#parts.of(entry);
    if (part !== undefined && !this.#waitsElsewhere(key, part)) {
      const delayMs = this.#parts.add(part, entry);
      if (delayMs === undefined) this.#schedule();
      else done({ kind: 'released', delayMs });
    } else if (this.stalled || this.room === 0) {
      done(unavailable);
    } else {
      this.#main.entries.push(entry);
      this.#schedule();
    }
  }

  /** Sends nothing more, and releases what has not been sent. */
  stop(): void {
    this.#stopped = true;
    this.#outages.stop();
    this.#flush(released);
  }

  /** Aborts calls in flight. Messages still delivered in time count. */
  abandon(reason: Error): void {
    this.#flush(released);
    for (const batch of this.#batches) batch.abandon(reason);
  }

  /** The destination is down: nothing queued here is sent. */
  shelveWaiting(): void {
    this.#flush(unavailable);
  }

  /**
   * Whether another queue has an event of this key, which a later one must not pass. The queue that the event is in counts:
   * events that waited in the common queue when their topic got its own are still there.
   */
  #waitsElsewhere(key: string | null, part: DestinationPart): boolean {
    if (key === null || !this.#options.publisher.capabilities.keyRuns) return false;
    const queues = [this.#main, ...this.#parts.waiting()];
    return queues.some((queue) => queue !== part && queue.entries.some((entry) => entry.key === key));
  }

  #isSlow(): boolean {
    if (!this.#options.hasNeighbours) return false;
    for (const batch of this.#batches) if (!batch.isOfPart && batch.ageMs > slowAfterMs) return true;
    return false;
  }

  /** In the next turn of the event loop, so that messages that arrive together are sent together. */
  #schedule(): void {
    if (this.#scheduled) return;
    this.#scheduled = true;
    setImmediate(() => {
      this.#scheduled = false;
      this.#sendBatches();
    });
  }

  #sendBatches(): void {
    for (let wasSent = true; wasSent; ) {
      wasSent = false;
      for (const part of this.#turns()) {
        if (!this.#sendBatch(part)) continue;
        wasSent = true;
        this.#isMainNext = part !== undefined;
      }
      wasSent = this.#giveUpFailed() || wasSent;
    }
  }

  /**
   * The queues in the order of their turns. The common queue and the parts alternate in going first, so that neither starves.
   */
  #turns(): readonly (DestinationPart | undefined)[] {
    if (!this.#parts.hasWaiting) return mainOnly;
    const parts = this.#parts.waiting();
    return this.#isMainNext ? [undefined, ...parts] : [...parts, undefined];
  }

  /** Sends the next batch of a part, or of the queue that the others share, if one may begin. */
  #sendBatch(part: DestinationPart | undefined): boolean {
    const queue = part ?? this.#main;
    if (queue.entries.length === 0 || !this.#options.isUp() || this.#outages.isDoubted) return false;
    const { publisher, isProven } = this.#options;
    const batchesMax = isProven() ? publisher.capabilities.batchesInFlightMax : 1;
    if (!this.#parts.mayBegin(part, this.#batches.size, batchesMax)) return false;
    const entries = this.#nextEntries(queue);
    if (part !== undefined) this.#parts.changed(part);
    if (entries.length > 0) this.#publish(entries, part);
    return entries.length > 0;
  }

  /** The first entries that fit, without those whose key is in another batch, or is not ready to be sent. */
  #nextEntries(queue: SendQueue): PendingMessage[] {
    const { batchBytesMax, keyRuns } = this.#options.publisher.capabilities;
    const isProven = this.#options.isProven();
    const batchSizeMax = isProven ? this.#options.publisher.capabilities.batchSizeMax : 1;
    const isTrial =
      isProven || !this.#outages.attribution.hasSuspects ? undefined : this.#outages.attribution.trialIn(queue.entries);
    const chosen: PendingMessage[] = [];
    const skipped: PendingMessage[] = [];
    const own = new Set<string>();
    const heldBackKeys = keyRuns && queue === this.#main ? this.#parts.waitingKeys() : new Set<string>();
    let bytes = 0;
    let at = 0;
    for (; at < queue.entries.length && chosen.length < batchSizeMax && skipped.length < skipMax; at++) {
      const entry = queue.entries[at] as PendingMessage;
      const { key } = entry;
      const isHeldBack =
        key !== null && (this.#busyKeys.has(key) || heldBackKeys.has(key) || (!keyRuns && own.has(key)));
      const isOther = isTrial !== undefined && !isTrial(entry);
      const message = isHeldBack || isOther ? undefined : this.#writer.write(entry);
      if (message === undefined) {
        skipped.push(entry);
        if (key !== null) heldBackKeys.add(key);
        continue;
      }
      if (chosen.length > 0 && bytes + message.bytes > batchBytesMax) break;
      bytes += message.bytes;
      chosen.push(entry);
      if (key !== null) own.add(key);
    }
    queue.entries = skipped.length > 0 ? [...skipped, ...queue.entries.slice(at)] : queue.entries.slice(at);
    for (const key of own) this.#busyKeys.add(key);
    return chosen;
  }

  /** Returns whether there were entries that could not be written. What is behind them with their key goes back. */
  #giveUpFailed(): boolean {
    if (!this.#writer.takeFailed()) return false;
    const failed = this.#queued().filter(({ failure }) => failure !== undefined);
    const unwritable = failed.filter((entry) => isUnwritable(entry) && !this.#unwritable.has(entry));
    if (unwritable.length > 0) void this.#examine(unwritable);
    const ownFailure = (entry: PendingMessage) => (isUnwritable(entry) ? undefined : entry.failure);
    const keys = new Set(failed.filter(ownFailure).map(({ key }) => key));
    const gone = this.#take((entry) => ownFailure(entry) !== undefined || (entry.key !== null && keys.has(entry.key)));
    // Of a key the first that failed; those behind it were not tried.
    const answered = new Set<string>();
    for (const entry of gone) {
      const { key, done } = entry;
      const failure = key === null || !answered.has(key) ? ownFailure(entry) : undefined;
      if (key !== null) answered.add(key);
      done((failure as TargetOutcome | undefined) ?? released);
    }
    return true;
  }

  /**
   * Treats messages whose serializer is unavailable like a batch that the publisher could not deliver. Until that is decided they
   * stay in the queue, where nothing of their keys passes them.
   */
  async #examine(entries: readonly PendingMessage[]): Promise<void> {
    const outcomesOf = (some: readonly PendingMessage[]) => some.map(({ failure }) => failure as PublishOutcome);
    for (const entry of entries) this.#unwritable.add(entry);
    const own = await this.#outages.ownFailures({ entries, outcomes: outcomesOf(entries) });
    const examined = new Set(entries);
    for (const entry of entries) this.#unwritable.delete(entry);
    // Those that were flushed meanwhile have their result.
    const left = this.#take((entry) => examined.has(entry));
    if (left.length > 0) this.#finish(left, outcomesOf(left), { tookMs: 0, own });
    this.#schedule();
  }

  #publish(entries: readonly PendingMessage[], part: DestinationPart | undefined): void {
    const { publisher, publishTimeoutMs } = this.#options;
    const messages = entries.map(({ message }) => message as Message);
    const batch = new Batch(publisher, messages, publishTimeoutMs, part !== undefined);
    this.#batches.add(batch);
    const end = part === undefined ? this.#watch() : this.#parts.begin(part, batch);
    void batch.run().then(async (outcomes) => {
      const tookMs = batch.ageMs;
      end?.();
      this.#batches.delete(batch);
      const isAway = !batch.abandoned && outcomes.some(({ kind }) => kind === 'unavailable');
      const own = isAway ? await this.#outages.ownFailures({ entries, outcomes }) : none;
      for (const { key } of entries) if (key !== null) this.#busyKeys.delete(key);
      if (batch.abandoned) this.#finishAbandoned(entries, outcomes);
      else this.#finish(entries, outcomes, { tookMs, own });
      // Not immediately: the client may take some 20 ms to encode a batch, and the outcomes above should be sent to the
      // database first.
      this.#schedule();
    });
  }

  /** While a batch is in flight: if it takes long, the messages behind it are shelved, so that other targets do not wait. */
  #watch(): (() => void) | undefined {
    if (!this.#options.hasNeighbours) return undefined;
    let stalled = false;
    const handBack = (from: number) => {
      for (const { done } of this.#main.entries.splice(from)) done(unavailable);
    };
    const slow = setTimeout(() => handBack(this.#options.bufferMax()), slowAfterMs);
    const timer = setTimeout(() => {
      stalled = true;
      this.#stalled++;
      handBack(0);
    }, stalledAfterMs);
    return () => {
      clearTimeout(slow);
      clearTimeout(timer);
      if (stalled) this.#stalled--;
    };
  }

  #finishAbandoned(entries: readonly PendingMessage[], outcomes: readonly PublishOutcome[]): void {
    const results = outcomes.map(({ kind }) => (kind === 'delivered' ? delivered : released));
    this.#report(entries, results);
  }

  /** `own`: the events and topics whose failures are their own. */
  #finish(
    entries: readonly PendingMessage[],
    outcomes: readonly PublishOutcome[],
    { tookMs, own }: { tookMs: number; own: ReadonlySet<string> },
  ): void {
    if (outcomes.every(({ kind }) => kind === 'delivered')) {
      this.#succeeded(entries);
      for (const { done } of entries) done(delivered);
      return;
    }
    const successful = entries.filter((_, index) => outcomes[index]?.kind === 'delivered');
    if (successful.length > 0) this.#succeeded(successful);
    // First, so that nothing that the results below unblock is sent into the outage.
    const failedAlone = this.#outages.decideBatch({ entries, outcomes }, own, () => this.#canTry());
    if (outcomes.some(({ kind }) => kind === 'failed' || kind === 'rejected')) this.#options.onProven();
    this.#parts.setFailedApart(entries, outcomes, tookMs);
    const results = batchResults(entries, outcomes, {
      failedAlone,
      retryAfterMaxMs: this.#options.retryAfterMaxMs,
    });
    this.#report(entries, results);
  }

  /**
   * Hands over the results of a batch that did not succeed as a whole. The failures come first, then what waits behind
   * them in the queues: an event that succeeded lets the next one of its key be sent at once, and that one must not pass
   * a failed event of the key (G4).
   */
  #report(entries: readonly PendingMessage[], results: readonly TargetOutcome[]): void {
    const failedKeys = new Map<string, TargetOutcome>();
    for (const [index, { key, done }] of entries.entries()) {
      const result = results[index] as TargetOutcome;
      if (result.kind === 'delivered') continue;
      if (key !== null && !failedKeys.has(key))
        failedKeys.set(key, result.kind === 'unavailable' ? unavailable : released);
      done(result);
    }
    const behind = failedKeys.size > 0 ? this.#take(({ key }) => key !== null && failedKeys.has(key)) : [];
    for (const { key, done } of behind) done(failedKeys.get(key as string) as TargetOutcome);
    for (const [index, { done }] of entries.entries()) if (results[index]?.kind === 'delivered') done(delivered);
  }

  #succeeded(entries: readonly PendingMessage[]): void {
    this.#outages.attribution.succeeded(entries);
    this.#options.onProven();
    if (!this.#parts.hasApart) return;
    // In front: messages in the queue of a topic are older than those for it in the common queue.
    for (const { leg } of entries) this.#main.entries.unshift(...this.#parts.bringBack(leg));
  }

  /** Whether another event is available as a trial. */
  #canTry(): boolean {
    if (this.#batches.size > 0) return true;
    for (const entry of this.#queued()) if (this.#outages.attribution.suspicionOf(entry) < 2) return true;
    return false;
  }

  #queued(): PendingMessage[] {
    return [...this.#main.entries, ...this.#parts.waiting().flatMap(({ entries }) => entries)];
  }

  #flush(result: TargetOutcome): void {
    for (const { done } of this.#take(() => true)) done(result);
  }

  #take(matches: (entry: PendingMessage) => boolean): PendingMessage[] {
    const taken = this.#main.entries.filter(matches);
    if (taken.length > 0) this.#main.entries = this.#main.entries.filter((entry) => !matches(entry));
    return [...taken, ...this.#parts.take(matches)];
  }
}

function isUnwritable({ failure }: PendingMessage): boolean {
  return failure?.kind === 'unavailable';
}
