-- Records what an operator is about to do: a row of outbox_audit that finish_operation() completes. Returns its id. `operator` is
-- the name as given, or the database role if it is empty.
--
-- SECURITY DEFINER: a role whose operations are recorded must not be able to change the record. It may read outbox_audit and
-- write to it only with this function and finish_operation(). session_user is the role that logged in, here too, and a role cannot
-- choose it: SET ROLE changes current_user only.
create or replace function :"schema".start_operation(operator text, action text, target jsonb, why text) returns bigint
language plpgsql security definer set search_path = pg_catalog, pg_temp set row_security = off as $postcommit$
declare
  operation bigint;
begin
  insert into :"schema".outbox_audit (operator, database_role, action, target, reason)
    values (coalesce(nullif(operator, ''), session_user), session_user, action, target, nullif(why, ''))
    returning id into operation;
  return operation;
end
$postcommit$;
revoke execute on function :"schema".start_operation(text, text, jsonb, text) from public;
