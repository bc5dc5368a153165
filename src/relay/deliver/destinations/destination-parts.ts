import type { Publisher, PublishOutcome } from '../../../publishers/publisher.ts';
import type { Batch } from './batch.ts';
import type { Leg } from './leg.ts';
import type { PendingMessage } from './pending-message.ts';
import {
  partDelayMsMax,
  partDelayMsMin,
  partFirstDelayMsMax,
  partFirstTookMs,
  partNamesMax,
  partQueuedMs,
  partsMax,
  slowAfterMs,
} from './tuning.ts';

/** Messages that wait to be sent, in order. */
export interface SendQueue {
  entries: PendingMessage[];
}

/** A part of a destination that has its own queue: one host of many, or a failing topic. */
export class DestinationPart implements SendQueue {
  readonly name: string;
  entries: PendingMessage[] = [];
  isSlow = false;
  readonly underWay = new Set<Batch>();
  /** How many batches it may have in flight: one until it has answered in time, then more. */
  window = 1;
  /** How long its batches take, as a moving average. */
  tookMs = partFirstTookMs;
  /** Estimated time by which the events released because of it have been sent. */
  turnAt = 0;
  /** Since when it has been busy without a break. */
  busySince: number | undefined;
  /** Its contribution to the totals of slow parts. */
  countedUnderWay = 0;
  countedWaiting = 0;

  constructor(name: string) {
    this.name = name;
  }

  get expectedMs(): number {
    const [oldest] = this.underWay;
    return Math.max(this.tookMs, oldest?.ageMs ?? 0);
  }
}

/**
 * The parts of one destination, so that one of them cannot delay the others.
 *
 * Where the publisher speaks to many servers (`parts`: webhooks with URLs from the route), each of them has a queue of
 * its own and at most `parts.inFlightMax` calls. All other publishers share one queue and mix topics in a batch; there
 * only a failing topic gets its own queue, until something is delivered to it.
 *
 * Slow parts share half of the destination's calls. A part starts with one call and gets more as it answers in time, so new
 * parts cannot take the other half; if parts become slow with many calls in flight, half as many more are made for the others.
 * A queue is bounded in time: events beyond it are released for about as long as the part needs to get to them.
 */
export class DestinationParts {
  readonly #publisher: Publisher;
  /** How many events all slow parts together may queue. */
  readonly #slowWaitingMax: () => number;
  readonly #parts = new Map<string, DestinationPart>();
  /** Parts with something to send, the one that was served longest ago first. */
  readonly #waiting = new Set<DestinationPart>();
  readonly #busySlow = new Set<DestinationPart>();
  readonly #names = new Map<string, string>();
  #slowUnderWay = 0;
  #slowWaiting = 0;

  constructor(publisher: Publisher, slowWaitingMax: () => number) {
    this.#publisher = publisher;
    this.#slowWaitingMax = slowWaitingMax;
  }

  /** Events that slow parts keep in the relay: in their queues and in flight. */
  get stuck(): number {
    let stuck = this.#slowWaiting;
    for (const part of this.#busySlow) for (const batch of part.underWay) stuck += batch.size;
    return stuck;
  }

  /** The publisher's name of the part that a message goes to, if the publisher has parts. Cached by topic. */
  nameOf({ topic }: Leg): string | undefined {
    const { parts } = this.#publisher;
    if (parts === undefined) return undefined;
    const known = this.#names.get(topic);
    if (known !== undefined) return known;
    let name: string | undefined;
    try {
      name = parts.of(topic);
    } catch {
      return undefined; // It waits in the common queue, and `publish` reports what is wrong with the topic.
    }
    if (name === undefined) return undefined;
    // Clears all instead of the oldest: that would need a second structure, and a hit would have to write.
    if (this.#names.size >= partNamesMax) this.#names.clear();
    this.#names.set(topic, name);
    return name;
  }

  /** The part with its own queue that a message belongs to, if there is one. */
  of({ part, leg }: PendingMessage): DestinationPart | undefined {
    if (this.#publisher.parts === undefined) {
      return this.#parts.size === 0 ? undefined : this.#parts.get(topicName(leg));
    }
    return part === undefined ? undefined : this.#get(part);
  }

  /** Whether any topic has its own queue. */
  get hasApart(): boolean {
    return this.#publisher.parts === undefined && this.#parts.size > 0;
  }

  /** The keys of all messages in queues of parts. */
  waitingKeys(): Set<string> {
    const keys = new Set<string>();
    for (const part of this.#waiting) for (const { key } of part.entries) if (key !== null) keys.add(key);
    return keys;
  }

  get hasWaiting(): boolean {
    return this.#waiting.size > 0;
  }

  /** Parts with something to send. */
  waiting(): DestinationPart[] {
    return [...this.#waiting];
  }

  /** Queues a message. If the queue is full, returns for how long to release the event. */
  add(part: DestinationPart, entry: PendingMessage): number | undefined {
    const perEventMs = part.expectedMs / this.#eventsAtOnce;
    const waitingMax = Math.max(this.#eventsAtOnce, Math.floor(partQueuedMs / perEventMs));
    const isFull = part.entries.length >= waitingMax;
    if (isFull || (part.isSlow && this.#slowWaiting >= this.#slowWaitingMax())) {
      return this.#delayMs(part, perEventMs);
    }
    part.entries.push(entry);
    this.changed(part);
    return undefined;
  }

  /**
   * A topic that failed while others did not, or that makes batches slow and fails (one that does not exist, in Kafka),
   * gets batches of its own.
   */
  setFailedApart(entries: readonly PendingMessage[], outcomes: readonly PublishOutcome[], tookMs: number): void {
    if (this.#publisher.parts !== undefined) return;
    const ofKind = (kind: string) => entries.filter((_, index) => outcomes[index]?.kind === kind);
    const alive = new Set(ofKind('delivered').map(({ leg }) => topicName(leg)));
    const failed = [
      ...(alive.size > 0 ? ofKind('unavailable') : []),
      ...(tookMs > slowAfterMs ? ofKind('failed') : []),
    ];
    for (const { leg } of failed) if (!alive.has(topicName(leg))) this.#setApart(leg);
  }

  #setApart(leg: Leg): void {
    const part = this.#get(topicName(leg));
    part.isSlow = true;
    this.changed(part);
  }

  /** Something was delivered to this topic. Returns the messages that waited for it. */
  bringBack(leg: Leg): PendingMessage[] {
    const part = this.hasApart ? this.#parts.get(topicName(leg)) : undefined;
    if (part === undefined) return [];
    part.isSlow = false;
    const waiting = part.entries;
    part.entries = [];
    this.changed(part);
    return waiting;
  }

  /** Whether a batch may begin: of this part, or without one of the queue that all others share. */
  mayBegin(part: DestinationPart | undefined, underWay: number, batchesMax: number): boolean {
    const half = Math.floor(batchesMax / 2);
    const { parts } = this.#publisher;
    if (part?.isSlow) {
      if (underWay >= batchesMax || this.#slowUnderWay >= Math.max(1, half)) return false;
      const share = Math.max(1, Math.floor(half / this.#busySlow.size));
      return part.underWay.size < Math.min(share, parts?.inFlightMax ?? 1);
    }
    if (part !== undefined && part.underWay.size >= part.window) return false;
    // Calls already in flight to parts that became slow cannot be undone: they must not keep other parts from being sent to.
    if (underWay >= (parts === undefined ? batchesMax : batchesMax + half)) return false;
    return underWay - this.#slowUnderWay < batchesMax - Math.min(this.#slowUnderWay, half);
  }

  /** A batch of this part is sent. To be called back when it has ended. */
  begin(part: DestinationPart, batch: Batch): () => void {
    part.underWay.add(batch);
    // The part that waits longest is next.
    this.#waiting.delete(part);
    this.changed(part);
    const timer = setTimeout(() => {
      part.isSlow = true;
      this.changed(part);
    }, slowAfterMs);
    return () => {
      clearTimeout(timer);
      part.underWay.delete(batch);
      const tookMs = batch.ageMs;
      part.tookMs = (part.tookMs + tookMs) / 2;
      const [oldest] = part.underWay;
      const { parts } = this.#publisher;
      if (parts !== undefined) {
        part.isSlow = Math.max(tookMs, oldest?.ageMs ?? 0) > slowAfterMs;
        part.window = part.isSlow ? 1 : Math.min(parts.inFlightMax, part.window * 2);
      }
      this.changed(part);
    };
  }

  /** Takes messages out of all queues. */
  take(matches: (entry: PendingMessage) => boolean): PendingMessage[] {
    const taken: PendingMessage[] = [];
    for (const part of this.waiting()) {
      const before = taken.length;
      for (const entry of part.entries) if (matches(entry)) taken.push(entry);
      if (taken.length === before) continue;
      part.entries = part.entries.filter((entry) => !matches(entry));
      this.changed(part);
    }
    return taken;
  }

  /** To be called after every change of a part. */
  changed(part: DestinationPart): void {
    const underWay = part.underWay.size;
    const waiting = part.entries.length;
    const isBusy = underWay + waiting > 0;
    const countedUnderWay = part.isSlow ? underWay : 0;
    const countedWaiting = part.isSlow ? waiting : 0;
    this.#slowUnderWay += countedUnderWay - part.countedUnderWay;
    this.#slowWaiting += countedWaiting - part.countedWaiting;
    part.countedUnderWay = countedUnderWay;
    part.countedWaiting = countedWaiting;
    part.busySince = isBusy ? (part.busySince ?? performance.now()) : undefined;
    if (waiting > 0) this.#waiting.add(part);
    else this.#waiting.delete(part);
    if (part.isSlow && isBusy) this.#busySlow.add(part);
    else this.#busySlow.delete(part);
    if (!isBusy && (!part.isSlow || this.#parts.size > partsMax)) this.#parts.delete(part.name);
  }

  #get(name: string): DestinationPart {
    let part = this.#parts.get(name);
    if (part === undefined) {
      part = new DestinationPart(name);
      this.#parts.set(name, part);
    }
    return part;
  }

  /** How many events a part takes at once. */
  get #eventsAtOnce(): number {
    const { parts, capabilities } = this.#publisher;
    return parts === undefined ? capabilities.batchSizeMax : parts.inFlightMax * capabilities.batchSizeMax;
  }

  /**
   * Each event a little longer than the one before: they return at the pace of the part, and are not claimed repeatedly while
   * it is busy. The pace must be learned: no event is released for longer than the part has been busy (a delay of 15 s,
   * derived from the first calls of a process that had just started, was three times too long).
   */
  #delayMs(part: DestinationPart, perEventMs: number): number {
    const now = performance.now();
    const busyMs = now - (part.busySince ?? now);
    const longestMs = Math.min(partDelayMsMax, Math.max(partFirstDelayMsMax, busyMs));
    part.turnAt = Math.max(part.turnAt, now + part.entries.length * perEventMs) + perEventMs;
    if (part.turnAt - now <= longestMs) return Math.max(partDelayMsMin, part.turnAt - now);
    part.turnAt = now + longestMs;
    return longestMs * (0.75 + Math.random() / 4);
  }
}

/** The identity of a topic: in RabbitMQ the same routing key of another exchange is another topic. */
export function topicName({ topic, exchange }: Leg): string {
  return exchange === undefined ? topic : `${exchange}\0${topic}`;
}
