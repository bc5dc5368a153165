import type { Executor } from '../database/executor.ts';
import type { DropExpiredResult } from '../outbox/maintaining/drop-partition.ts';
import { dropExpired, reasonOf } from '../outbox/maintaining/drop-partition.ts';
import { listPartitions } from '../outbox/maintaining/list-partitions.ts';
import { pruneEvents } from '../outbox/maintaining/prune-events.ts';
import { pruneAllProcessed } from '../outbox/maintaining/prune-processed.ts';
import { pruneRelays } from '../outbox/maintaining/prune-relays.ts';
import { findSeqAtTime } from '../outbox/operating/find-seq-at-time.ts';
import { readLogEnd } from '../outbox/operating/read-log-end.ts';
import { checkKeepMs } from '../retention.ts';
import type { BulkOptions } from './chunks.ts';
import { checkBulkOptions } from './chunks.ts';

export interface PruneOptions extends Omit<BulkOptions, 'onProgress'> {
  /** Called after each chunk, with the number of rows deleted so far and the part of the old events that was read, from 0 to 1. */
  onProgress?: (count: number, share?: number) => void;
  /** Deletes events that were emitted longer ago, unless they are still needed. `Infinity`: none. */
  olderThanMs: number;
  /** Deletes rows of `processed_events` that are older. `Infinity`: none. Default: `olderThanMs`. */
  processedOlderThanMs?: number;
  /** Only count, delete nothing. Default `false`. */
  dryRun?: boolean;
}

export interface PruneResult {
  /** Events deleted from the log, or with `dryRun` events that would be deleted. */
  events: number;
  /** Events that are old enough, but were kept. */
  kept: {
    /** Not delivered yet: in the queue. */
    queued: number;
    /** Waiting for a destination that is down or paused. */
    shelved: number;
    /** Dead letters: retry or discard them first. */
    dead: number;
    /** Unqueued events: never queued or delivered. `admin.requeueUnqueued()` queues them. */
    unqueued: number;
  };
  /** Rows of `processed_events` deleted. */
  processed: number;
  /** Numbers of the dropped partitions. */
  partitions: number[];
  /** Partitions that are old enough, but were kept, with the reason. */
  keptPartitions: { number: number; reason: string }[];
  /** Present when `signal` stopped it before its end. */
  interrupted?: true;
}

/** Rows per statement: about 10 ms. */
const chunkRowsMax = 1_000;

/** Reads the whole log from its beginning, independent of the cursor of the leader, to count everything that is kept. */
export async function prune(db: Executor, schema: string, options: PruneOptions): Promise<PruneResult> {
  const { olderThanMs, processedOlderThanMs, dryRun, signal, onProgress } = check(options);
  const isRunning = () => signal?.aborted !== true;
  const result: PruneResult = {
    events: 0,
    kept: { queued: 0, shelved: 0, dead: 0, unqueued: 0 },
    processed: 0,
    partitions: [],
    keptPartitions: [],
  };
  for (let more = true; more && isRunning(); ) {
    const {
      dropped,
      kept,
      more: hasMore,
    } = await (dryRun ? findDroppable : dropExpired)(db, schema, {
      keepMs: olderThanMs,
    });
    result.partitions.push(...dropped);
    result.keptPartitions = kept;
    more = hasMore;
  }
  const shareAt = onProgress && (await shareOfOldEvents(db, schema, olderThanMs));
  for (let after = '0'; olderThanMs !== Number.POSITIVE_INFINITY; ) {
    if (!isRunning()) return { ...result, interrupted: true };
    const chunk = await pruneEvents(db, schema, { after, keepMs: olderThanMs, rowsMax: chunkRowsMax, dryRun });
    result.events += chunk.pruned;
    result.kept.queued += chunk.queued;
    result.kept.shelved += chunk.shelved;
    result.kept.dead += chunk.dead;
    result.kept.unqueued += chunk.unqueued;
    after = chunk.reached;
    onProgress?.(result.events, chunk.finished ? 1 : shareAt?.(after));
    if (chunk.finished) break;
  }
  await pruneAllProcessed(db, schema, {
    keepMs: processedOlderThanMs,
    dryRun,
    signal,
    onChunk: (count) => {
      result.processed += count;
      onProgress?.(result.events + result.processed);
    },
  });
  if (!dryRun) while (isRunning() && (await pruneRelays(db, schema, chunkRowsMax)) === chunkRowsMax);
  return { ...result, ...(!isRunning() && { interrupted: true as const }) };
}

/** Returns a function that says which part of the old events lies before a seq. Only for display: seqs have gaps. */
async function shareOfOldEvents(
  db: Executor,
  schema: string,
  olderThanMs: number,
): Promise<(seq: string) => number | undefined> {
  if (olderThanMs === Number.POSITIVE_INFINITY) return () => undefined;
  const { now } = await readLogEnd(db, schema);
  const [first, last] = [
    await findSeqAtTime(db, schema, '-infinity'),
    await findSeqAtTime(db, schema, new Date(Date.parse(now) - olderThanMs).toISOString()),
  ].map(Number);
  return (seq) =>
    first === undefined || !(Number(last) > first) ? undefined : (Number(seq) - first) / (Number(last) - first);
}

/** What `dropExpired` would do, as far as this is known without its locks. */
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

function check(options: PruneOptions) {
  checkBulkOptions(options, 'prune', ['olderThanMs', 'processedOlderThanMs', 'dryRun']);
  const olderThanMs = checkKeepMs('olderThanMs', options.olderThanMs);
  return {
    ...options,
    olderThanMs,
    processedOlderThanMs: checkKeepMs('processedOlderThanMs', options.processedOlderThanMs ?? olderThanMs),
    dryRun: options.dryRun === true,
  };
}
