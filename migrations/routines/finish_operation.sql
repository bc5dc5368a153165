-- Completes a row of start_operation() with how many events the operation changed, or why it failed. Returns whether it did: it
-- changes nothing if the row is complete already, or if another role started the operation.
--
-- SECURITY DEFINER: see start_operation().
create or replace function :"schema".finish_operation(operation bigint, changed_count bigint, failure text) returns boolean
language plpgsql security definer set search_path = pg_catalog, pg_temp set row_security = off as $postcommit$
begin
  update :"schema".outbox_audit a set finished_at = now(), changed = changed_count, error = failure
   where a.id = operation and a.finished_at is null and a.database_role = session_user;
  return found;
end
$postcommit$;
revoke execute on function :"schema".finish_operation(bigint, bigint, text) from public;
