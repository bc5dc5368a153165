import type { Executor } from '../../database/executor.ts';
import { perSchema } from '../../database/identifier.ts';
import { readJson } from '../read-json.ts';
import type { Chunk, DeadLetterSelection } from './conditions.ts';
import { conditionsGoHere, whereSelected } from './conditions.ts';

/**
 * Makes the function that calls a routine for the dead letters that match, in order of seq. A left join with the log: a
 * dead letter whose event was deleted from it may block its key. See `requeue` and `discard` in migrations/routines for
 * the contracts and the rationale.
 */
export function resolver(routine: 'requeue' | 'discard') {
  const sql = perSchema(
    (s) => `
with chosen as materialized (
  select d.seq
    from ${s}.outbox_dead_letters d
    left join lateral (select l.* from ${s}.outbox_events l where l.seq = d.seq limit 1) e on true
   where ${routine === 'discard' ? 'd.discarded_at is null' : 'true'} ${conditionsGoHere}
   order by d.seq limit $1::text::integer
), resolved as materialized (
  select count(*) as seen, max(seq)::text as reached, ${s}.${routine}(coalesce(array_agg(seq), '{}')) as result from chosen
)
select json_build_object('seen', r.seen, 'reached', r.reached, 'count', r.result -> 'count',
                         'freedKeys', r.result -> 'freedKeys')::text as json
  from resolved r`,
  );
  return async (db: Executor, schema: string, selection: DeadLetterSelection, chunk: Chunk): Promise<ResolvedChunk> => {
    const conditions = whereSelected(selection, chunk);
    const [result] = await readJson<ResolvedChunk>(db, conditions.into(sql(schema)), conditions.values);
    return result as ResolvedChunk;
  };
}

/** The result of one statement of a bulk operation. */
export interface ChunkResult {
  /** How many events it found: fewer than its limit means that there are no more. */
  seen: number;
  /** How many of them it changed. */
  count: number;
  /** The highest seq it found; `null` if there was none. */
  reached: string | null;
}

/** The same for dead letters. */
export interface ResolvedChunk extends ChunkResult {
  /** Keys that one of them blocked: the caller unparks the events behind it. */
  freedKeys: string[];
}

/**
 * Puts dead letters back into the queue: due now, with all attempts left, and without the targets that already have the
 * event. Earlier failures stay in outbox_failures.
 */
export const requeue = resolver('requeue');
