import type { Executor } from '../database/executor.ts';
import type { DropExpiredResult } from '../outbox/maintaining/drop-partition.ts';
import { dropExpired, reasonOf } from '../outbox/maintaining/drop-partition.ts';
import { listPartitions } from '../outbox/maintaining/list-partitions.ts';
import { pruneEvents } from '../outbox/maintaining/prune-events.ts';
import { firstTime, pruneProcessed } from '../outbox/maintaining/prune-processed.ts';
import { pruneRelays } from '../outbox/maintaining/prune-relays.ts';
import { readLogEnd } from '../outbox/operating/read-log-end.ts';
import { checkKeepMs } from '../retention.ts';
import type { BulkOptions } from './chunks.ts';
import { checkBulkOptions } from './chunks.ts';

export interface PruneOptions extends BulkOptions {
  /** Events that were emitted longer ago are removed, unless they are still needed. `Infinity`: none. */
  olderThanMs: number;
  /** What consumers processed longer ago is forgotten. `Infinity`: none. Default: `olderThanMs`. */
  processedOlderThanMs?: number;
  /** Only count, and change nothing. Default `false`. */
  dryRun?: boolean;
}

export interface PruneResult {
  /** Events removed from the log, or with `dryRun` those that would be. */
  events: number;
  /** Old enough, and kept all the same. */
  kept: {
    /** Not delivered yet: in the queue. */
    queued: number;
    /** They wait for a destination that is away or paused. */
    shelved: number;
    /** Dead letters: retry or discard them first. */
    dead: number;
    /** Orphans: never delivered, and in no queue. `admin.requeueOrphans()` has them delivered. */
    orphaned: number;
  };
  /** Entries of `processed_events` removed. */
  processed: number;
  /** Partitions dropped with all that was in them, by number. */
  partitions: number[];
  /** Partitions that are old enough and stay, with the reason. */
  keptPartitions: { number: number; reason: string }[];
  /** Present when `signal` ended it before all was done. */
  interrupted?: true;
}

/** Rows per statement: some ten milliseconds of work. */
const chunkRowsMax = 1_000;

/** The whole log from its beginning, whatever the leader's cursor says: so it can tell of everything that had to stay. */
export async function prune(db: Executor, schema: string, given: PruneOptions): Promise<PruneResult> {
  const { olderThanMs, processedOlderThanMs, dryRun, signal, onProgress } = check(given);
  const goesOn = () => signal?.aborted !== true;
  const result: PruneResult = {
    events: 0,
    kept: { queued: 0, shelved: 0, dead: 0, orphaned: 0 },
    processed: 0,
    partitions: [],
    keptPartitions: [],
  };
  for (let more = true; more && goesOn(); ) {
    const {
      dropped,
      kept,
      more: goOn,
    } = await (dryRun ? findDroppable : dropExpired)(db, schema, {
      keepMs: olderThanMs,
    });
    result.partitions.push(...dropped);
    result.keptPartitions = kept;
    more = goOn;
  }
  for (let after = '0'; olderThanMs !== Number.POSITIVE_INFINITY; ) {
    if (!goesOn()) return { ...result, interrupted: true };
    const chunk = await pruneEvents(db, schema, { after, keepMs: olderThanMs, rowsMax: chunkRowsMax, dryRun });
    result.events += chunk.pruned;
    result.kept.queued += chunk.queued;
    result.kept.shelved += chunk.shelved;
    result.kept.dead += chunk.dead;
    result.kept.orphaned += chunk.orphaned;
    after = chunk.reached;
    onProgress?.(result.events);
    if (chunk.finished) break;
  }
  for (let after = firstTime; processedOlderThanMs !== Number.POSITIVE_INFINITY; ) {
    if (!goesOn()) return { ...result, interrupted: true };
    const chunk = { after, keepMs: processedOlderThanMs, rowsMax: chunkRowsMax, dryRun };
    const { count, reached } = await pruneProcessed(db, schema, chunk);
    result.processed += count;
    after = reached;
    onProgress?.(result.events + result.processed);
    if (count < chunkRowsMax) break;
  }
  if (!dryRun) while (goesOn() && (await pruneRelays(db, schema, chunkRowsMax)) === chunkRowsMax);
  return { ...result, ...(!goesOn() && { interrupted: true as const }) };
}

/** What `dropExpired` would do, as far as can be told without its locks. */
async function findDroppable(db: Executor, schema: string, { keepMs }: { keepMs: number }): Promise<DropExpiredResult> {
  const { now } = await readLogEnd(db, schema);
  const { partitions } = await listPartitions(db, schema);
  const expired = partitions.filter(({ closedAt }) => closedAt && Date.parse(now) - closedAt.getTime() >= keepMs);
  const result: DropExpiredResult = { dropped: [], kept: [], more: false };
  for (const { number, undelivered: count } of expired) {
    if (count === 0) result.dropped.push(number);
    else result.kept.push({ number, reason: reasonOf({ kept: 'undelivered', count }) });
  }
  return result;
}

function check(given: PruneOptions) {
  checkBulkOptions(given, 'prune', ['olderThanMs', 'processedOlderThanMs', 'dryRun']);
  const olderThanMs = checkKeepMs('olderThanMs', given.olderThanMs);
  return {
    ...given,
    olderThanMs,
    processedOlderThanMs: checkKeepMs('processedOlderThanMs', given.processedOlderThanMs ?? olderThanMs),
    dryRun: given.dryRun === true,
  };
}
