-- Counts the trial of a prime suspect before it begins, because a relay that ends during the trial writes nothing. Settling or
-- failing the event resets the count. Returns false if the relay no longer owns the event (G5). See claim_many() for suspects.
create or replace function :"schema".begin_trial(relay bigint, seq bigint) returns boolean
language plpgsql set search_path = pg_catalog, pg_temp set row_security = off set lock_timeout = '7s'
set enable_seqscan = off set enable_bitmapscan = off set plan_cache_mode = force_generic_plan set jit = off
as $postcommit$
#variable_conflict use_column
begin
  update :"schema".outbox_queue q set takeovers = takeovers + 1 where q.seq = begin_trial.seq and q.claimed_by = relay;
  return found;
end
$postcommit$;
