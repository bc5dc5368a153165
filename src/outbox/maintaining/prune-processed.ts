import type { Executor } from '../../database/executor.ts';
import { perSchema } from '../../database/identifier.ts';
import { readJson } from '../read-json.ts';

// Starts at the time that the last chunk reached, to skip the dead index entries that it left.
const pruneProcessedSql = perSchema(
  (s) => `
with old as materialized (
  select ctid as place, processed_at from ${s}.processed_events
   where processed_at >= $1::text::timestamptz
     and processed_at < now() - $2::text::double precision * interval '1 millisecond'
   order by processed_at limit $3::text::integer
), gone as (
  delete from ${s}.processed_events p where p.ctid = any (array(select place from old))
)
select json_build_object('count', count(*), 'reached', max(processed_at))::text as json
  from old`,
);

const countProcessedSql = perSchema(
  (s) => `
select json_build_object('count', count(*), 'reached', max(processed_at))::text as json
  from (select processed_at from ${s}.processed_events
         where processed_at > $1::text::timestamptz
           and processed_at < now() - $2::text::double precision * interval '1 millisecond'
         order by processed_at fetch first ($3::text::integer) rows with ties) p`,
);

/** Earlier than every row. */
export const firstTime = '-infinity';

/**
 * Removes old records of which events consumers have processed: an event that is delivered again after that is processed
 * again. One chunk, oldest first; `reached` is where the next one begins. Safe to repeat.
 */
export async function pruneProcessed(
  db: Executor,
  schema: string,
  { after, keepMs, rowsMax, dryRun = false }: { after: string; keepMs: number; rowsMax: number; dryRun?: boolean },
): Promise<{ count: number; reached: string }> {
  const sql = dryRun ? countProcessedSql : pruneProcessedSql;
  const values = [after, String(keepMs), String(rowsMax)];
  const [chunk] = await readJson<{ count: number; reached: string | null }>(db, sql(schema), values);
  return { count: chunk?.count ?? 0, reached: chunk?.reached ?? after };
}

/** Rows per statement: about 10 ms. */
const chunkRowsMax = 1_000;

/** The same to the end, chunk by chunk, or until `signal` is aborted. Returns how many were removed, or would be. */
export async function pruneAllProcessed(
  db: Executor,
  schema: string,
  {
    keepMs,
    dryRun = false,
    signal,
    onChunk,
  }: { keepMs: number; dryRun?: boolean; signal?: AbortSignal | undefined; onChunk?: (count: number) => void },
): Promise<number> {
  let pruned = 0;
  for (let after = firstTime; keepMs !== Number.POSITIVE_INFINITY && signal?.aborted !== true; ) {
    const { count, reached } = await pruneProcessed(db, schema, { after, keepMs, rowsMax: chunkRowsMax, dryRun });
    pruned += count;
    after = reached;
    onChunk?.(count);
    if (count < chunkRowsMax) break;
  }
  return pruned;
}
