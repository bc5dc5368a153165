import type { Executor } from '../database/executor.ts';
import { compareSeq } from '../outbox/delivering/claim.ts';
import type { Chunk } from '../outbox/operating/conditions.ts';
import { findSeqsById } from '../outbox/operating/find-seqs-by-id.ts';
import type { ChunkResult } from '../outbox/operating/requeue.ts';
import type { EventReference } from './event-reference.ts';
import { checkOptionNames } from './option-names.ts';

/** Progress and cancellation of an operation on many events. */
export interface BulkOptions {
  /** Stops the operation after the current chunk of 1,000 events. Completed chunks stay committed. */
  signal?: AbortSignal;
  /** Called after each chunk that changed events, with the number of events changed so far. */
  onProgress?: (count: number) => void;
}

/** An id that several events have. Possible only in a partitioned log. */
export interface DuplicateId {
  id: string;
  /** The seqs of these events, lowest first. Use a seq to select one of them. */
  seqs: string[];
}

export interface BulkResult {
  /** Events changed. */
  count: number;
  /** Present when `signal` stopped the operation before its end. */
  interrupted?: true;
  /** The given ids that several events have. All of these events were changed. Absent if there are none. */
  duplicates?: DuplicateId[];
}

export function checkBulkOptions<Options extends object>(
  options: Options,
  method: string,
  more: string[] = [],
): Options {
  checkOptionNames(options, method, ['signal', 'onProgress', ...more]);
  return options;
}

/** Events per statement: it holds its locks for about 10 ms. */
export const chunkSizeMax = 1_000;

/**
 * Runs a bulk statement in chunks, in order of seq, until nothing of the selections is left. Selections must be in order of
 * seq. `stoppedAt` is present when the signal stopped it: the remaining events have higher seqs.
 */
export async function runInChunks<Selection>(
  selections: readonly Selection[],
  run: (selection: Selection, chunk: Chunk) => Promise<ChunkResult>,
  { signal, onProgress, after = '0' }: BulkOptions & { after?: string | undefined } = {},
): Promise<{ count: number; stoppedAt?: string }> {
  let total = 0;
  let position = after;
  for (const selection of selections) {
    for (let more = true; more; ) {
      if (signal?.aborted) return { count: total, stoppedAt: position };
      const { seen, count, reached } = await run(selection, { after: position, limit: chunkSizeMax });
      total += count;
      more = seen === chunkSizeMax;
      position = reached ?? position;
      if (count > 0) onProgress?.(total);
    }
  }
  return { count: total };
}

/** The seqs of the given events, lowest first to keep the order, in lists for one statement each. */
export async function seqsOf(
  db: Executor,
  schema: string,
  references: readonly EventReference[],
): Promise<{ lists: string[][]; duplicates: DuplicateId[] }> {
  const seqs = new Set<string>();
  const byId = new Map<string, Set<string>>();
  for (const part of splitIntoChunks(references)) {
    const ids = part.flatMap((reference) => ('id' in reference ? [reference.id] : []));
    for (const reference of part) if ('seq' in reference) seqs.add(reference.seq);
    if (ids.length === 0) continue;
    for (const { id, seq } of await findSeqsById(db, schema, ids)) {
      seqs.add(seq);
      byId.set(id, (byId.get(id) ?? new Set()).add(seq));
    }
  }
  const duplicates = [...byId].flatMap(([id, found]) =>
    found.size > 1 ? [{ id, seqs: [...found].sort(compareSeq) }] : [],
  );
  return { lists: splitIntoChunks([...seqs].sort(compareSeq)), duplicates };
}

function splitIntoChunks<T>(items: readonly T[]): T[][] {
  const result: T[][] = [];
  for (let i = 0; i < items.length; i += chunkSizeMax) result.push(items.slice(i, i + chunkSizeMax));
  return result;
}
