import type { Executor } from '../database/executor.ts';
import { compareSeq } from '../outbox/claim.ts';
import type { Chunk } from '../outbox/conditions.ts';
import type { ChunkResult } from '../outbox/requeue.ts';
import { resolve } from '../outbox/resolve.ts';
import type { EventReference } from './event-reference.ts';

/** Rows per statement: some ten milliseconds of locks. */
const chunkSizeMax = 1_000;

/** Repeats a bulk statement from one seq to the next until nothing is left, and answers how many events it changed. */
export async function inChunks(run: (chunk: Chunk) => Promise<ChunkResult>): Promise<number> {
  let total = 0;
  for (let after: string | null = '0'; after !== null; ) {
    const { seen, count, reached }: ChunkResult = await run({ after, limit: chunkSizeMax });
    total += count;
    after = seen < chunkSizeMax ? null : reached;
  }
  return total;
}

/** The seqs of the named events, lowest first as order demands, in lists that fit one statement. */
export async function toSeqs(db: Executor, schema: string, references: readonly EventReference[]): Promise<string[][]> {
  const seqs = new Set<string>();
  for (const part of parts(references)) {
    const ids = part.flatMap((reference) => ('id' in reference ? [reference.id] : []));
    for (const reference of part) if ('seq' in reference) seqs.add(reference.seq);
    if (ids.length > 0) for (const seq of await resolve(db, schema, ids)) seqs.add(seq);
  }
  return parts([...seqs].sort(compareSeq));
}

function parts<T>(items: readonly T[]): T[][] {
  const result: T[][] = [];
  for (let i = 0; i < items.length; i += chunkSizeMax) result.push(items.slice(i, i + chunkSizeMax));
  return result;
}
