-- Fails unless the isolation level is READ COMMITTED. Functions that take a lock and then read what its previous holder changed
-- need a snapshot taken after the lock. `what` names the caller's operation in the message.
create or replace function :"schema".require_read_committed(what text) returns void
language plpgsql set search_path = pg_catalog, pg_temp as $postcommit$
begin
  if current_setting('transaction_isolation') <> 'read committed' then
    raise exception '% only under READ COMMITTED', what using
      errcode = 'invalid_transaction_state',
      hint = 'Set default_transaction_isolation to ''read committed'' for this role.';
  end if;
end
$postcommit$;
revoke execute on function :"schema".require_read_committed(text) from public;
