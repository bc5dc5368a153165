-- Takes the session lock of a relay, and gives up every other advisory lock of the session. The lock is free as soon as the
-- relay's process or connection ends, which probe_relays() notices: the other relays know of a crash long before the lease ends.
--
-- Returns whether the session holds the lock; NULL if the relay was declared lost. The lock may be taken for two reasons. Another
-- relay tests it, which takes less than a millisecond and is waited for. Or the server has not noticed yet that the relay's last
-- connection is gone: then only the lease counts (session_lock) until a later call gets the lock.
create or replace function :"schema".hold_relay_lock(relay bigint) returns boolean
language plpgsql set search_path = pg_catalog, pg_temp set row_security = off set lock_timeout = '200ms' as $postcommit$
declare
  class constant integer := 1886352483 + 2097152 + (hashtextextended(:'schema', 0) & 1048575)::integer;
  is_held boolean := true;
begin
  perform pg_advisory_unlock_all();
  begin
    perform pg_advisory_lock(class, hashint8(relay));
  exception when lock_not_available then
    is_held := false;
  end;
  update :"schema".outbox_relays r set session_lock = is_held, lock_free_since = null
   where r.token = relay and r.ended_at is null;
  if not found then
    perform pg_advisory_unlock_all();
    return null;
  end if;
  return is_held;
end
$postcommit$;
