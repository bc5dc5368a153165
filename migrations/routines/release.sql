-- Makes events due now that are delayed or in backoff. Returns how many, and how many were left alone because a living relay has
-- claimed them. What was deferred behind them is undeferred by the caller, when this has committed.
--
-- Not what is parked (infinity): that waits for a blocking dead letter. A relay that claims an event at this moment is not
-- disturbed: what it does with the event sets or removes the time anyway.
--
-- COALESCE around the time keeps the planner from the index on it, as in defer().
create or replace function :"schema".release(seqs bigint[]) returns jsonb
language plpgsql set search_path = pg_catalog, pg_temp set row_security = off
set enable_seqscan = off set enable_bitmapscan = off set plan_cache_mode = force_generic_plan set jit = off
as $postcommit$
#variable_conflict use_column
declare
  result jsonb;
begin
  with alive as materialized (
    select token from :"schema".outbox_relays where ended_at is null
  ), chosen as materialized (
    select q.seq from :"schema".outbox_queue q
     where q.seq = any (seqs) and not q.blocking
       and coalesce(q.available_at, 'infinity') > now() and coalesce(q.available_at, 'infinity') < 'infinity'
       and (q.claimed_by is null or q.claimed_by not in (select token from alive))
     order by q.seq for update
  ), released as (
    update :"schema".outbox_queue q set available_at = null where q.seq = any (array(select seq from chosen))
  )
  select jsonb_build_object(
    'count', (select count(*) from chosen),
    'inFlight', (select count(*) from :"schema".outbox_queue q
                  where q.seq = any (seqs) and q.claimed_by in (select token from alive)))
    into result;
  return result;
end
$postcommit$;
