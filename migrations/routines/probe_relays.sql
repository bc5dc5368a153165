-- Tests the session locks of the other relays. A free lock is recorded in lock_free_since, which the relay clears when it takes
-- the lock again (hold_relay_lock). Relays without a session lock are never suspected for it.
--
-- Returns the session's process, whether the caller itself is registered, how long the server has been up, the relays under
-- suspicion, and those that this call declared lost. Under suspicion are relays whose lock is free, and those without a lock on
-- the caller's own host, whose process the caller can look for.
--
-- The caller decides how long a lock must have been free, by its own clock, and passes the relays to declare lost: the token, and
-- the lock_free_since that it has seen (0 for a relay without a lock). A relay that took its lock again meanwhile, and lost it
-- again, has another lock_free_since. The test takes the lock in shared mode until the end of the statement, so a relay cannot take
-- its lock between the test and the declaration, and several relays can test at the same time.
create or replace function :"schema".probe_relays(own bigint, own_host text, lost bigint[], lost_since bigint[]) returns json
language plpgsql set search_path = pg_catalog, pg_temp set row_security = off as $postcommit$
declare
  class constant integer := 1886352483 + 2097152 + (hashtextextended(:'schema', 0) & 1048575)::integer;
  other record;
  free_since bigint;
  described json;
  suspects json[] := '{}';
  declared json[] := '{}';
begin
  for other in
    select r.token, r.name, r.host, r.pid, r.host_id, r.process_id, r.session_lock, r.lock_free_since
      from :"schema".outbox_relays r where r.ended_at is null and r.token <> own
  loop
    if other.session_lock then
      continue when not pg_try_advisory_xact_lock_shared(class, hashint8(other.token));
      if other.lock_free_since is null then
        update :"schema".outbox_relays r set lock_free_since = now()
         where r.token = other.token and r.ended_at is null and r.session_lock and r.lock_free_since is null
        returning r.lock_free_since into other.lock_free_since;
        continue when not found;
      end if;
    else
      continue when other.host_id is distinct from own_host;
    end if;
    free_since := case when other.session_lock then extract(epoch from other.lock_free_since) * 1000000 else 0 end;
    described := json_build_object('token', other.token::text, 'name', other.name, 'host', other.host, 'pid', other.pid,
                                   'hostId', other.host_id, 'processId', other.process_id, 'freeSince', free_since::text);
    if exists (select from unnest(lost, lost_since) as l(token, since) where l.token = other.token and l.since = free_since) then
      update :"schema".outbox_relays r set ended_at = now(), ended_as = 'lost'
       where r.token = other.token and r.ended_at is null and r.session_lock = other.session_lock
         and r.lock_free_since is not distinct from other.lock_free_since;
      if found then
        declared := declared || described;
      end if;
    else
      suspects := suspects || described;
    end if;
  end loop;
  return json_build_object(
    'session', pg_backend_pid(),
    'registered', exists (select from :"schema".outbox_relays r where r.token = own and r.ended_at is null),
    'serverUpMs', extract(epoch from clock_timestamp() - pg_postmaster_start_time()) * 1000,
    'suspects', suspects, 'lost', declared);
end
$postcommit$;
