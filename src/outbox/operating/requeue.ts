import type { Executor } from '../../database/executor.ts';
import { perSchema } from '../../database/identifier.ts';
import { readJson } from '../read-json.ts';
import type { Chunk, DeadLetterSelection } from './conditions.ts';
import { conditionsGoHere, whereSelected } from './conditions.ts';

// The dead letters are locked first and in order of seq, so that two operators take turns instead of deadlocking, and
// whoever comes second finds the rows gone. A blocking one still has its queue row; that is freed in place, and waits for a
// `defer` that is putting an event behind it at this moment (see unpark.ts). One whose event is no longer in the log is
// taken as well: it may hold its key, and the relay buries it again without holding.
const requeueSql = perSchema(
  (s) => `
with chosen as materialized (
  select d.seq, d.key, d.done, d.owed, d.replay_id, d.blocking
    from ${s}.outbox_dead_letters d
    left join lateral (select l.* from ${s}.outbox_events l where l.seq = d.seq limit 1) e on true
   where true ${conditionsGoHere}
   order by d.seq limit $1::text::integer for update of d
), gone as (
  delete from ${s}.outbox_dead_letters d where d.seq = any (array(select seq from chosen))
), back as (
  insert into ${s}.outbox_queue (seq, key, done, owed, replay_id)
  select seq, key, done, owed, replay_id from chosen order by seq
  on conflict (seq) do update
    set blocking = false, attempts = 0, rescues = 0, available_at = null, done = excluded.done, owed = excluded.owed
    where outbox_queue.blocking
)
select json_build_object('seen', count(*), 'count', count(*), 'reached', max(seq)::text,
                         'freedKeys', array(select distinct key::text from chosen where blocking and key is not null))::text as json
  from chosen`,
);

/** What one statement of a bulk operation did. */
export interface ChunkResult {
  /** How many events it found: fewer than its limit means that there are no more. */
  seen: number;
  /** How many of them it changed. */
  count: number;
  /** The highest seq it found; `null` when there was none. */
  reached: string | null;
}

/** The same for dead letters. */
export interface ResolvedChunk extends ChunkResult {
  /** Keys that one of them held: what is parked behind it is to be unparked. */
  freedKeys: string[];
}

/**
 * Puts dead letters back into the queue: due at once, with all attempts ahead of them, and without repeating the
 * targets that already have the event. What failed so far stays in outbox_failures.
 */
export async function requeue(
  db: Executor,
  schema: string,
  selection: DeadLetterSelection,
  chunk: Chunk,
): Promise<ResolvedChunk> {
  const conditions = whereSelected(selection, chunk);
  const [result] = await readJson<ResolvedChunk>(db, conditions.into(requeueSql(schema)), conditions.values);
  return result as ResolvedChunk;
}
