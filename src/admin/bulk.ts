import type { Executor } from '../database/executor.ts';
import { unpark } from '../outbox/delivering/unpark.ts';
import type { Chunk, DeadLetterSelection } from '../outbox/operating/conditions.ts';
import { discard } from '../outbox/operating/discard.ts';
import { nextPart, orphansMax, requeueOrphans } from '../outbox/operating/orphans.ts';
import { moment } from '../outbox/operating/read-log-end.ts';
import type { ReplaySelection } from '../outbox/operating/replay.ts';
import { replay } from '../outbox/operating/replay.ts';
import { requeue } from '../outbox/operating/requeue.ts';
import type { BulkOptions, BulkResult, DuplicateId } from './chunks.ts';
import { checkBulkOptions, inChunks, toSeqs } from './chunks.ts';
import { fromCursor, toCursor } from './cursor.ts';
import type { EventReference } from './event-reference.ts';
import type { DeadLetterTarget, ReplayTarget } from './filters.ts';
import { checkDeadLetterTarget, checkEventTarget } from './filters.ts';
import { seqRange } from './seq-range.ts';

export interface ReplayOptions extends BulkOptions {
  /** The `next` of a replay that was interrupted: goes on behind it. Keep the target as it was. */
  after?: string;
}

export interface ReplayResult extends BulkResult {
  /** Present with `interrupted`: hand it in as `after` to go on. To begin again would replay the same events twice. */
  next?: string;
}

/** Seqs of the log that one statement searches for orphans: 2 ms where batches were settled, 0.2 s where single events were. */
const orphanPartSeqs = 100_000;

const resolutions = { retry: requeue, discard };

export async function resolveDeadLetters(
  db: Executor,
  schema: string,
  resolution: keyof typeof resolutions,
  target: DeadLetterTarget,
  options: BulkOptions,
): Promise<BulkResult> {
  const checked = checkDeadLetterTarget(target);
  const watch = checkBulkOptions(options, resolution);
  const run = async (selection: DeadLetterSelection, chunk: Chunk) => {
    const result = await resolutions[resolution](db, schema, selection, chunk);
    // Not left for the end: a later chunk may fail, and what is parked behind this one would be forgotten.
    if (result.freedKeys.length > 0) await unpark(db, schema, result.freedKeys);
    return result;
  };
  const { selections, duplicates } = await selectionsOf(db, schema, checked, async (letters) => {
    const { lastDeath } = await moment(db, schema);
    return { letters, diedUntil: lastDeath };
  });
  const { count, stoppedAt } = await inChunks<DeadLetterSelection>(selections, run, watch);
  // Also when nothing was freed: a call that was killed before it could unpark is made good by the next one.
  await unpark(db, schema);
  return bulkResult(count, stoppedAt, duplicates);
}

export async function replayEvents(
  db: Executor,
  schema: string,
  target: ReplayTarget,
  options: ReplayOptions,
): Promise<ReplayResult> {
  const checked = checkEventTarget(target);
  const { after: cursor, ...watch } = checkBulkOptions(options, 'replay', ['after']);
  const after = fromCursor('replay', cursor);
  const { selections, duplicates } = await selectionsOf(db, schema, checked, async (events) => {
    const { lastSeq } = await moment(db, schema);
    return { events, ...(await seqRange(db, schema, events)), seqUntil: lastSeq };
  });
  const { count, stoppedAt } = await inChunks<ReplaySelection>(
    selections,
    (selection, chunk) => replay(db, schema, selection, chunk),
    { ...watch, after },
  );
  const next = stoppedAt === undefined ? {} : { next: toCursor('replay', stoppedAt) };
  return { ...bulkResult(count, stoppedAt, duplicates), ...next };
}

export async function requeueAllOrphans(db: Executor, schema: string, options: BulkOptions): Promise<BulkResult> {
  const { signal, onProgress } = checkBulkOptions(options, 'requeueOrphans');
  let count = 0;
  for (let from: string | undefined = '0'; from !== undefined; ) {
    if (signal?.aborted) return { count, interrupted: true };
    const part = await nextPart(db, schema, from, orphanPartSeqs);
    if (part === undefined) break;
    const requeued = await requeueOrphans(db, schema, part);
    count += requeued;
    // A full answer: there may be more in this part.
    if (requeued < orphansMax) from = part.beyond;
    onProgress?.(count);
  }
  return { count };
}

async function selectionsOf<Conditions, Selection>(
  db: Executor,
  schema: string,
  checked: { references: EventReference[] } | { conditions: Conditions },
  select: (conditions: Conditions) => Promise<Selection>,
): Promise<{ selections: (Selection | { seqs: string[] })[]; duplicates: DuplicateId[] }> {
  if ('conditions' in checked) return { selections: [await select(checked.conditions)], duplicates: [] };
  const { lists, duplicates } = await toSeqs(db, schema, checked.references);
  return { selections: lists.map((seqs) => ({ seqs })), duplicates };
}

function bulkResult(count: number, stoppedAt: string | undefined, duplicates: DuplicateId[]): BulkResult {
  return {
    count,
    ...(stoppedAt !== undefined && { interrupted: true as const }),
    ...(duplicates.length > 0 && { duplicates }),
  };
}
