-- Records the transitions of events that were not delivered, as fail() does, and settles others, as settle() does. In one
-- transaction: after a crash between the two, a failed event would be queued behind a later one of its key that is already
-- settled (G4). Returns the seqs that this relay no longer owns (G5).
--
-- All rows are locked first, in order of seq, as cancel_events() locks them: else each could wait for a row that the other has.
--
-- The settings are those of claim_many(), for the same reasons.
--
-- requires: fail, settle
create or replace function :"schema".fail_and_settle(relay bigint, failures jsonb, seqs bigint[], group_sizes integer[], group_targets jsonb)
returns bigint[]
language plpgsql set search_path = pg_catalog, pg_temp set row_security = off set lock_timeout = '7s'
set enable_seqscan = off set enable_bitmapscan = off set plan_cache_mode = force_generic_plan set jit = off
as $postcommit$
declare
  failed constant bigint[] := array(select (f.value ->> 'seq')::bigint from jsonb_array_elements(failures) f);
begin
  perform from :"schema".outbox_queue q
    where q.seq = any (failed || seqs) and q.claimed_by = fail_and_settle.relay order by q.seq for update;
  return :"schema".fail(relay, failures) || :"schema".settle(relay, seqs, group_sizes, group_targets);
end
$postcommit$;
