-- Removes the rows of outbox_audit that are older than `keep_ms`, and older than 90 days whatever `keep_ms` is. Examines the
-- `rows_max` oldest. Returns how many it removed.
--
-- SECURITY DEFINER: the relay that does maintenance may not delete from outbox_audit. The 90 days are in this function, so that a
-- caller cannot remove what it has just done.
create or replace function :"schema".prune_audit(rows_max integer, keep_ms double precision) returns integer
language plpgsql security definer set search_path = pg_catalog, pg_temp
set row_security = off set lock_timeout = '2s' as $postcommit$
declare
  pruned integer;
begin
  delete from :"schema".outbox_audit a
   where a.id = any (array(select x.id from :"schema".outbox_audit x order by x.id limit rows_max))
     and a.started_at < now() - greatest(keep_ms, 7776000000) * interval '1 millisecond';
  get diagnostics pruned = row_count;
  return pruned;
end
$postcommit$;
revoke execute on function :"schema".prune_audit(integer, double precision) from public;
