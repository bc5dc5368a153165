-- Counts the trial of a prime suspect before it begins: if the relay ends during it, nothing else is written. Settling or failing
-- the event undoes it. Returns false if the relay has not claimed the event any more (G5). See claim_many() for suspects.
create or replace function :"schema".begin_trial(relay bigint, seq bigint) returns boolean
language plpgsql set search_path = pg_catalog, pg_temp set row_security = off
set enable_seqscan = off set enable_bitmapscan = off set plan_cache_mode = force_generic_plan set jit = off
as $postcommit$
#variable_conflict use_column
begin
  update :"schema".outbox_queue q set rescues = rescues + 1 where q.seq = begin_trial.seq and q.claimed_by = relay;
  return found;
end
$postcommit$;
