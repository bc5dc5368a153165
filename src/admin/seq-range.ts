import type { Executor } from '../database/executor.ts';
import type { EventConditions } from '../outbox/operating/conditions.ts';
import { findSeqAtTime } from '../outbox/operating/find-seq-at-time.ts';
import { findSeqRange } from '../outbox/operating/find-seq-range.ts';

/**
 * The seqs between which all events of a time range are. The statement still checks the time itself; the bounds only keep it
 * from reading the whole log.
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
  const { from, before } = await findSeqRange(db, schema, { createdFrom, createdBefore, ...guess });
  return { seqFrom: from ?? undefined, seqBefore: before ?? undefined };
}
