import type { ClaimedEvent } from '../event/claimed-event.ts';
import { KeyQueue } from './key-queue.ts';
import { crowdedShare, keyEventsMin } from './tuning.ts';

/** A key with a limit for its events in the buffer of a queue. */
interface LimitedKey {
  key: string;
  queue: KeyQueue;
  share: number;
  /** What to do with its events beyond that. */
  excess: 'keep' | 'release' | 'defer';
}

/** What the keys have in the buffer of a queue, and may not. */
export interface KeyExcess {
  /** Events of slow keys, to be released for a while. */
  slow: ClaimedEvent[];
  /** Events of other keys, to be released. */
  other: ClaimedEvent[];
  /** Keys that should not be claimed from this queue now. */
  enough: Set<string>;
  /** How many events of this queue are left behind fronts that block it. */
  blocked: number;
}

/** The buffer of a queue. */
export interface BufferLimits {
  /** How many events it has now at most. */
  target: number;
  /** How many events that are blocked for long it has at most. */
  blockedMax: number;
  /** Whether it has little room. */
  isShort: boolean;
}

/** The keys with buffered events. */
export class KeyQueues {
  #byKey = new Map<string, KeyQueue>();

  get isEmpty(): boolean {
    return this.#byKey.size === 0;
  }

  get(key: string | null): KeyQueue | undefined {
    return key === null ? undefined : this.#byKey.get(key);
  }

  getOrAdd(key: string): KeyQueue {
    const known = this.#byKey.get(key);
    if (known !== undefined) return known;
    const added = new KeyQueue();
    this.#byKey.set(key, added);
    return added;
  }

  delete(key: string): void {
    this.#byKey.delete(key);
    // A new Map: the old one keeps its hash tables.
    if (this.#byKey.size === 0) this.#byKey = new Map();
  }

  clear(): void {
    this.#byKey.clear();
  }

  /** Takes out what has not started, except from the fronts. */
  drain(): ClaimedEvent[] {
    const events: ClaimedEvent[] = [];
    for (const [key, queue] of this.#byKey) {
      events.push(...queue.behind);
      queue.behind = [];
      queue.leaveUnbegun();
      if (!queue.begun) this.#byKey.delete(key);
    }
    return events;
  }

  /** Takes out what exceeds the shares of keys in a queue's buffer. */
  takeExcess(queueName: string, limits: BufferLimits, now: number): KeyExcess {
    const excess: KeyExcess = { slow: [], other: [], enough: new Set(), blocked: 0 };
    const limit = ({ key, queue, share, excess: then }: LimitedKey) => {
      if (then === 'defer') excess.slow.push(...queue.takeExcess(queueName, share));
      else if (then === 'release' && limits.isShort) excess.other.push(...queue.takeExcess(queueName, share));
      const count = queue.countBehind(queueName);
      if (count * 2 >= share) excess.enough.add(key);
      return count;
    };
    for (const crowded of crowdedKeys(this.#byKey, queueName, limits.target, now)) limit(crowded);
    for (const blocked of blockedKeys(this.#byKey, queueName, limits.blockedMax, now)) excess.blocked += limit(blocked);
    return excess;
  }
}

type ByKey = ReadonlyMap<string, KeyQueue>;

/** Returns the entries whose queue matches. Does not copy the whole map: the next claim waits for this. */
function entriesWhere(keys: ByKey, matches: (queue: KeyQueue) => boolean): [string, KeyQueue][] {
  const found: [string, KeyQueue][] = [];
  for (const entry of keys) if (matches(entry[1])) found.push(entry);
  return found;
}

/** The keys with a long backlog in a queue, or a slow delivery, and how much of the queue's buffer each may have. */
function crowdedKeys(keys: ByKey, queueName: string, target: number, now: number): LimitedKey[] {
  const crowded = entriesWhere(
    keys,
    (queue) => (queue.isSlow(now) || queue.hasEnough(now)) && queue.concerns(queueName) && !queue.blocks(queueName),
  );
  const fairShare = Math.max(0, Math.floor((target * crowdedShare) / crowded.length) - 1);
  return crowded.map(([key, queue]) => ({
    key,
    queue,
    share: Math.min(queue.bufferShare(now), fairShare),
    excess: queue.isSlow(now) ? 'defer' : 'release',
  }));
}

/**
 * The keys whose fronts block a queue. Also those without events of this queue: if the share is 0, a claim must not bring any,
 * because they would be released again.
 */
function blockedKeys(keys: ByKey, queueName: string, blockedMax: number, now: number): LimitedKey[] {
  const blocked = entriesWhere(keys, (queue) => queue.blocks(queueName));
  let forLong = 0;
  for (const [, queue] of blocked) {
    queue.noteBlocks(now);
    if (queue.blocksForLong(now)) forLong++;
  }
  const fairShare = Math.min(keyEventsMin, Math.floor(blockedMax / forLong));
  return blocked.map(([key, queue]) =>
    queue.blocksForLong(now)
      ? { key, queue, share: fairShare, excess: 'release' }
      : { key, queue, share: keyEventsMin, excess: 'keep' },
  );
}
