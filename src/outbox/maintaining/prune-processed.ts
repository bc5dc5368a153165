import type { Executor } from '../../database/executor.ts';
import { perSchema } from '../../database/identifier.ts';
import { readJson } from '../read-json.ts';

// From the time that the last chunk reached, so that it does not walk over the index entries that one has left dead.
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

/** Before everything. */
export const firstTime = '-infinity';

/**
 * Forgets which events consumers have processed, so long ago: an event that is delivered once more after that would be
 * processed once more. One chunk, oldest first; `reached` is where the next one begins. Harmless when done twice.
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
