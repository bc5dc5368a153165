import type { Executor } from '../database/executor.ts';
import { boundSeqs } from '../outbox/operating/bound-seqs.ts';
import type { EventConditions } from '../outbox/operating/conditions.ts';
import { findSeqAtTime } from '../outbox/operating/find-seq-at-time.ts';

/**
 * The part of the log that has all events of a time range. The conditions on the time itself still decide; this only keeps
 * them from being tried on everything.
 */
export async function seqRange(
  db: Executor,
  schema: string,
  { createdFrom, createdBefore }: EventConditions,
): Promise<{ seqFrom?: string | undefined; seqBefore?: string | undefined }> {
  if (createdFrom === undefined && createdBefore === undefined) return {};
  const seqAt = async (time: string | undefined) =>
    time === undefined ? undefined : await findSeqAtTime(db, schema, time);
  const guess = { seqFrom: await seqAt(createdFrom), seqBefore: await seqAt(createdBefore) };
  const { from, before } = await boundSeqs(db, schema, { createdFrom, createdBefore, ...guess });
  return { seqFrom: from ?? undefined, seqBefore: before ?? undefined };
}
