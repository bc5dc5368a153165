import { codedDatabaseError } from '../database/database-error.ts';
import type { Executor } from '../database/executor.ts';
import { compareSeq } from '../outbox/delivering/claim.ts';
import { unpark } from '../outbox/delivering/unpark.ts';
import { nextPart, unqueuedMax } from '../outbox/examining/next-part.ts';
import { cancel } from '../outbox/operating/cancel.ts';
import type { Chunk, DeadLetterSelection, EventConditions } from '../outbox/operating/conditions.ts';
import { discard } from '../outbox/operating/discard.ts';
import { listUndelivered } from '../outbox/operating/list-undelivered.ts';
import { makeDue } from '../outbox/operating/make-due.ts';
import { readLogEnd } from '../outbox/operating/read-log-end.ts';
import type { ReplaySelection } from '../outbox/operating/replay.ts';
import { replay } from '../outbox/operating/replay.ts';
import { requeue } from '../outbox/operating/requeue.ts';
import { requeueUnqueued } from '../outbox/operating/requeue-unqueued.ts';
import type { BulkOptions, BulkResult, DuplicateId } from './chunks.ts';
import { checkBulkOptions, runInChunks, seqsOf } from './chunks.ts';
import { checkReason } from './destinations.ts';
import type { EventReference } from './event-reference.ts';
import type { DeadLetterTarget, ReplayTarget, UndeliveredTarget } from './filters.ts';
import { checkDeadLetterTarget, checkEventTarget } from './filters.ts';
import { IncompleteReplay } from './incomplete-replay.ts';
import {
  continuedTarget,
  fromReplayCursor,
  requireSameSelection,
  selectionHash,
  toReplayCursor,
} from './replay-cursor.ts';
import { seqRange } from './seq-range.ts';

export interface ReplayOptions extends BulkOptions {
  /**
   * The `next` of an interrupted replay: continues behind it, up to the event that was the last one when the replay began. Pass
   * the same target; `from` and `to` mean the times of the first call.
   */
  after?: string;
}

export interface ReplayResult extends BulkResult {
  /** Present with `interrupted`: pass it as `after` to continue. Starting over would replay the same events twice. */
  next?: string;
}

export interface CancelOptions extends BulkOptions {
  /** Why, recorded with each event: at most 500 characters. Default: none. */
  reason?: string;
  /** Who, recorded with each event: at most 500 characters. Default: the database role. */
  by?: string;
}

export interface CancelResult extends BulkResult {
  /** How many of the cancelled events a live relay had claimed: it aborts their handlers (`ctx.signal`). */
  running: number;
  /** Selected events that were delivered before they could be cancelled. */
  delivered: number;
}

export interface UndeliveredResult extends BulkResult {
  /** Events not changed because a live relay has claimed them. */
  inFlight: number;
}

/** Seqs of the log that one statement searches for unqueued events: 2 ms where batches were settled, 0.2 s where single events were. */
const searchedSeqs = 100_000;

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
    // After each chunk, not at the end: if a later chunk fails, the events parked behind this one must not stay parked.
    if (result.freedKeys.length > 0) await unpark(db, schema, result.freedKeys);
    return result;
  };
  const { selections, duplicates } = await selectionsOf(db, schema, checked, async (letters) => {
    const { lastDeath } = await readLogEnd(db, schema);
    return { letters, diedUntil: lastDeath };
  });
  const { count, stoppedAt } = await runInChunks<DeadLetterSelection>(selections, run, watch);
  // Also when nothing was freed: this completes an earlier call that was killed before it could unpark.
  await unpark(db, schema);
  return bulkResult(count, stoppedAt, duplicates);
}

export async function replayEvents(
  db: Executor,
  schema: string,
  target: ReplayTarget,
  options: ReplayOptions,
): Promise<ReplayResult> {
  const { after: cursor, ...watch } = checkBulkOptions(options, 'replay', ['after']);
  const start = fromReplayCursor(cursor);
  const checked = checkEventTarget(continuedTarget(target, start));
  const selection = selectionHash(checked);
  requireSameSelection(start, selection);
  let selected = start?.selected;
  const { selections, duplicates } = await selectionsOf(db, schema, checked, async (events) => {
    const seqUntil = selected?.seqUntil ?? (await readLogEnd(db, schema)).lastSeq;
    selected = { seqUntil, createdFrom: events.createdFrom, createdBefore: events.createdBefore };
    return { events, ...(await seqRange(db, schema, events)), seqUntil };
  });
  let replayed = 0;
  let reached: string | undefined;
  const run = async (selection: ReplaySelection, chunk: Chunk) => {
    const result = await replay(db, schema, selection, chunk);
    replayed += result.count;
    reached = result.reached ?? reached;
    return result;
  };
  try {
    const { count, stoppedAt } = await runInChunks(selections, run, { ...watch, after: start?.after });
    const next = stoppedAt === undefined ? {} : { next: toReplayCursor({ after: stoppedAt, selection, selected }) };
    return { ...bulkResult(count, stoppedAt, duplicates), ...next };
  } catch (error) {
    if (replayed === 0 || reached === undefined) throw error;
    const next = toReplayCursor({ after: reached, selection, selected });
    throw new IncompleteReplay(codedDatabaseError(error), replayed, next);
  }
}

export async function makeEventsDue(
  db: Executor,
  schema: string,
  target: UndeliveredTarget,
  options: BulkOptions,
): Promise<UndeliveredResult> {
  const watch = checkBulkOptions(options, 'makeDue');
  let inFlight = 0;
  const change = async (seqs: readonly string[]) => {
    const changed = await makeDue(db, schema, seqs);
    inFlight += changed.inFlight;
    return changed;
  };
  return { ...(await changeUndelivered(db, schema, target, change, watch)), inFlight };
}

export async function cancelEvents(
  db: Executor,
  schema: string,
  target: UndeliveredTarget,
  options: CancelOptions,
): Promise<CancelResult> {
  const { reason, by, ...watch } = checkBulkOptions(options, 'cancel', ['reason', 'by']);
  const who = { reason: checkReason(reason), by: checkReason(by, 'by') };
  let running = 0;
  let delivered = 0;
  const change = async (seqs: readonly string[]) => {
    const cancelled = await cancel(db, schema, seqs, who);
    running += cancelled.running;
    delivered += cancelled.delivered;
    return cancelled;
  };
  return { ...(await changeUndelivered(db, schema, target, change, watch)), running, delivered };
}

type UndeliveredSelection = { seqs: readonly string[] } | { events: EventConditions; seqUntil: string };

async function changeUndelivered(
  db: Executor,
  schema: string,
  target: UndeliveredTarget,
  change: (seqs: readonly string[]) => Promise<{ count: number; taken: number }>,
  watch: BulkOptions,
): Promise<BulkResult> {
  const checked = checkEventTarget(target);
  const run = async (selection: UndeliveredSelection, chunk: Chunk) => {
    const seqs =
      'seqs' in selection
        ? selection.seqs.filter((seq) => compareSeq(seq, chunk.after) > 0)
        : await listUndelivered(db, schema, selection.events, { ...chunk, seqUntil: selection.seqUntil });
    if (seqs.length === 0) return { seen: 0, count: 0, reached: null };
    const changed = await change(seqs);
    // If the statement took only some of the events, the next chunk begins behind those.
    const seen = changed.taken < seqs.length ? chunk.limit : seqs.length;
    return { seen, count: changed.count, reached: seqs[changed.taken - 1] ?? null };
  };
  const { selections, duplicates } = await selectionsOf(db, schema, checked, async (events) => {
    const { lastSeq } = await readLogEnd(db, schema);
    return { events, seqUntil: lastSeq };
  });
  const { count, stoppedAt } = await runInChunks<UndeliveredSelection>(selections, run, watch);
  return bulkResult(count, stoppedAt, duplicates);
}

export async function requeueAllUnqueued(db: Executor, schema: string, options: BulkOptions): Promise<BulkResult> {
  const { signal, onProgress } = checkBulkOptions(options, 'requeueUnqueued');
  let count = 0;
  for (let from: string | undefined = '0'; from !== undefined; ) {
    if (signal?.aborted) return { count, interrupted: true };
    const part = await nextPart(db, schema, from, searchedSeqs);
    if (part === undefined) break;
    const requeued = await requeueUnqueued(db, schema, part);
    count += requeued;
    // A full chunk: there may be more in this part.
    if (requeued < unqueuedMax) from = part.beyond;
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
  const { lists, duplicates } = await seqsOf(db, schema, checked.references);
  return { selections: lists.map((seqs) => ({ seqs })), duplicates };
}

function bulkResult(count: number, stoppedAt: string | undefined, duplicates: DuplicateId[]): BulkResult {
  return {
    count,
    ...(stoppedAt !== undefined && { interrupted: true as const }),
    ...(duplicates.length > 0 && { duplicates }),
  };
}
