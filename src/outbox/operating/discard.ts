import type { Executor } from '../../database/executor.ts';
import { perSchema } from '../../database/identifier.ts';
import { readJson } from '../read-json.ts';
import type { Chunk, DeadLetterSelection } from './conditions.ts';
import { conditionsGoHere, whereSelected } from './conditions.ts';
import type { ResolvedChunk } from './requeue.ts';

// Locks as requeue does, and for the same reasons. A left join as there, too: an event that is no longer in the log
// must not hold its key for good.
const discardSql = perSchema(
  (s) => `
with chosen as materialized (
  select d.seq, d.key, d.blocking
    from ${s}.outbox_dead_letters d
    left join lateral (select l.* from ${s}.outbox_events l where l.seq = d.seq limit 1) e on true
   where d.discarded_at is null ${conditionsGoHere}
   order by d.seq limit $1::text::integer for update of d
), marked as (
  update ${s}.outbox_dead_letters d set discarded_at = now(), blocking = false
   where d.seq = any (array(select seq from chosen))
), freed as (
  delete from ${s}.outbox_queue q where q.seq = any (array(select seq from chosen where blocking)) and q.blocking
)
select json_build_object('seen', count(*), 'count', count(*), 'reached', max(seq)::text,
                         'freedKeys', array(select distinct key::text from chosen where blocking and key is not null))::text as json
  from chosen`,
);

/** Gives dead letters up. The rows stay, so that the story can be told; a key that one of them held goes on. */
export async function discard(
  db: Executor,
  schema: string,
  selection: DeadLetterSelection,
  chunk: Chunk,
): Promise<ResolvedChunk> {
  const conditions = whereSelected(selection, chunk);
  const [result] = await readJson<ResolvedChunk>(db, conditions.into(discardSql(schema)), conditions.values);
  return result as ResolvedChunk;
}
