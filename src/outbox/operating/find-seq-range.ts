import type { Executor } from '../../database/executor.ts';
import { perSchema } from '../../database/identifier.ts';
import { readJson } from '../read-json.ts';

/** See migrations/routines/find_seq_range.sql for the contract and the rationale. */
const findSeqRangeSql = perSchema(
  (s) => `
select ${s}.find_seq_range($1::text::timestamptz, $2::text::timestamptz, $3::text::bigint, $4::text::bigint)::text as json`,
);

/** A time range, and where it would be in the log if `created_at` grew with seq. */
export interface GuessedRange {
  createdFrom: string | undefined;
  createdBefore: string | undefined;
  seqFrom: string | undefined;
  seqBefore: string | undefined;
}

/** Bounds for the seqs of the events in a time range: `from` <= seq < `before`. `null`: no limit. */
export async function findSeqRange(
  db: Executor,
  schema: string,
  { createdFrom, createdBefore, seqFrom, seqBefore }: GuessedRange,
): Promise<{ from: string | null; before: string | null }> {
  const values = [createdFrom, createdBefore, seqFrom, seqBefore].map((value) => value ?? null);
  const [bounds] = await readJson<{ from: string | null; before: string | null }>(db, findSeqRangeSql(schema), values);
  return bounds as { from: string | null; before: string | null };
}
