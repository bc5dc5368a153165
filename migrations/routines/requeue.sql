-- Puts dead letters back into the queue: due at once, with all attempts ahead of them, and without the targets that already have the
-- event. What failed so far stays in outbox_failures. Returns how many there were, and the keys that one of them blocked: what is
-- parked behind them is to be unparked when this has committed.
--
-- The dead letters are locked first and in order of seq, so that two operators take turns instead of deadlocking, and the second
-- one finds the rows gone. A blocking one still has its queue row; that is freed in place, and waits for a defer() that is putting
-- an event behind it at this moment (src/outbox/delivering/unpark.ts). One whose event is no longer in the log is taken as
-- well: it may block its key, and the relay buries it again without blocking.
create or replace function :"schema".requeue(seqs bigint[]) returns jsonb
language plpgsql set search_path = pg_catalog, pg_temp set row_security = off
set enable_seqscan = off set enable_bitmapscan = off set plan_cache_mode = force_generic_plan set jit = off
as $postcommit$
#variable_conflict use_column
declare
  result jsonb;
begin
  with chosen as materialized (
    select d.seq, d.key, d.done, d.owed, d.replay_id, d.blocking
      from :"schema".outbox_dead_letters d where d.seq = any (seqs) order by d.seq for update
  ), gone as (
    delete from :"schema".outbox_dead_letters d where d.seq = any (array(select seq from chosen))
  ), back as (
    insert into :"schema".outbox_queue as q (seq, key, done, owed, replay_id)
    select seq, key, done, owed, replay_id from chosen order by seq
    on conflict (seq) do update
      set blocking = false, attempts = 0, rescues = 0, available_at = null, done = excluded.done, owed = excluded.owed
      where q.blocking
  )
  select jsonb_build_object(
    'count', count(*), 'freedKeys', array(select distinct key::text from chosen where blocking and key is not null))
    into result from chosen;
  return result;
end
$postcommit$;
