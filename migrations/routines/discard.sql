-- Discards dead letters. The rows stay as history, and retention may remove their events. A key that one of them blocked
-- continues. Returns the count and the keys that were blocked: the caller unparks these after this has committed. Locks as
-- requeue() does, for the same reasons.
create or replace function :"schema".discard(seqs bigint[]) returns jsonb
language plpgsql set search_path = pg_catalog, pg_temp set row_security = off
set enable_seqscan = off set enable_bitmapscan = off set plan_cache_mode = force_generic_plan set jit = off
as $postcommit$
#variable_conflict use_column
declare
  result jsonb;
begin
  with chosen as materialized (
    select d.seq, d.key, d.blocking from :"schema".outbox_dead_letters d
     where d.seq = any (seqs) and d.discarded_at is null order by d.seq for update
  ), marked as (
    update :"schema".outbox_dead_letters d set discarded_at = now(), blocking = false
     where d.seq = any (array(select seq from chosen))
  ), freed as (
    delete from :"schema".outbox_queue q where q.seq = any (array(select seq from chosen where blocking)) and q.blocking
  )
  select jsonb_build_object(
    'count', count(*), 'freedKeys', array(select distinct key::text from chosen where blocking and key is not null))
    into result from chosen;
  return result;
end
$postcommit$;
