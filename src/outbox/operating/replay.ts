import type { Executor } from '../../database/executor.ts';
import { perSchema } from '../../database/identifier.ts';
import { arrayText, readJson } from '../read-json.ts';
import type { Chunk, EventConditions } from './conditions.ts';
import { Conditions, isOneOf, whereEvent } from './conditions.ts';
import { deliveredEvents } from './list.ts';
import type { ChunkResult } from './requeue.ts';

// A selected event may be about to be pruned: the function checks again, under the lock of pruning.
const replaySql = perSchema(
  (s) => `
with chosen as materialized (
  select e.seq from ${deliveredEvents(s)} order by e.seq limit $1::text::integer
)
select json_build_object('seen', count(*), 'count', ${s}.replay(coalesce(array_agg(seq), '{}')),
                         'reached', max(seq)::text)::text as json
  from chosen`,
);

/** Which delivered events to replay: given ones, or all that match within a part of the log. */
export type ReplaySelection =
  | { seqs: readonly string[] }
  | { events: EventConditions; seqFrom?: string | undefined; seqBefore?: string | undefined; seqUntil: string };

/**
 * Puts delivered events back into the queue, to be delivered to all of their targets with the same event id and new
 * deduplication ids. Events of one key are queued in order of seq. Events that are queued or dead letters are skipped.
 */
export async function replay(
  db: Executor,
  schema: string,
  selection: ReplaySelection,
  chunk: Chunk,
): Promise<ChunkResult> {
  const conditions = new Conditions([String(chunk.limit)]).where(chunk.after, (v) => `e.seq > ${v}::bigint`);
  if ('seqs' in selection) {
    conditions.where(arrayText(selection.seqs), (v) => isOneOf('e.seq', v));
  } else {
    whereEvent(conditions, selection.events)
      .where(selection.seqFrom, (v) => `e.seq >= ${v}::bigint`)
      .where(selection.seqBefore, (v) => `e.seq < ${v}::bigint`)
      .where(selection.seqUntil, (v) => `e.seq <= ${v}::bigint`);
  }
  const [result] = await readJson<ChunkResult>(db, conditions.into(replaySql(schema)), conditions.values);
  return result as ChunkResult;
}
