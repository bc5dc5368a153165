-- Puts dead letters back into the queue: due now, with all attempts left, and without the targets that already have the event.
-- Earlier failures stay in outbox_failures. Returns the count and the keys that were blocked: the caller unparks these after
-- this has committed.
--
-- The dead letters are locked first, in order of seq, so that two operators take turns instead of deadlocking, and the second
-- one finds the rows gone. A blocking dead letter still has its queue row, which is freed in place; that update waits for a
-- defer() that is putting an event behind it (src/outbox/delivering/unpark.ts). A dead letter whose event is no longer in the
-- log is requeued as well: it may block its key, and the relay dead-letters it again without blocking. A cancelled event whose
-- delivery has not ended yet is skipped: it would be delivered twice at once.
create or replace function :"schema".requeue(seqs bigint[]) returns jsonb
language plpgsql set search_path = pg_catalog, pg_temp set row_security = off
set enable_seqscan = off set enable_bitmapscan = off set plan_cache_mode = force_generic_plan set jit = off
as $postcommit$
#variable_conflict use_column
declare
  result jsonb;
begin
  with chosen as materialized (
    select d.seq, d.key, d.done, d.owed, d.replay_id, d.blocking, coalesce(d.queue, 'default') as queue
      from :"schema".outbox_dead_letters d where d.seq = any (seqs)
         and not exists (select from :"schema".outbox_cancellations c where c.seq = d.seq)
       order by d.seq for update
  ), gone as (
    delete from :"schema".outbox_dead_letters d where d.seq = any (array(select seq from chosen))
  ), back as (
    insert into :"schema".outbox_queue as q (seq, key, done, owed, replay_id, queue)
    select seq, key, done, owed, replay_id, queue from chosen order by seq
    on conflict (seq) do update
      set blocking = false, attempts = 0, takeovers = 0, available_at = null, done = excluded.done, owed = excluded.owed,
          replay_id = excluded.replay_id
      where q.blocking
  )
  select jsonb_build_object(
    'count', count(*), 'freedKeys', array(select distinct key::text from chosen where blocking and key is not null))
    into result from chosen;
  return result;
end
$postcommit$;
