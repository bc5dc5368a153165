-- Locks all 16 gates (exclusive) within 100 ms, or none of them. Returns whether it locked them. See lock_keys() for the gates
-- and the limit. The exception block is a subtransaction, so a failure releases the gates already locked and restores
-- lock_timeout.
create or replace function :"schema".close_gates() returns boolean
language plpgsql set search_path = pg_catalog, pg_temp as $postcommit$
declare
  gates constant integer := 1886352483 + (hashtextextended(:'schema', 0) & 1048575)::integer;
  deadline constant timestamptz := clock_timestamp() + interval '100 milliseconds';
  given constant text := current_setting('lock_timeout');
  given_ms constant integer := (select nullif(setting::integer, 0) from pg_catalog.pg_settings where name = 'lock_timeout');
  left_ms integer;
begin
  for gate in 0 .. 15 loop
    continue when pg_try_advisory_xact_lock(gates, gate);
    left_ms := ceil(extract(epoch from deadline - clock_timestamp()) * 1000);
    if left_ms <= 0 then
      raise lock_not_available;
    end if;
    perform set_config('lock_timeout', least(left_ms, given_ms)::text, true);
    perform pg_advisory_xact_lock(gates, gate);
  end loop;
  perform set_config('lock_timeout', given, true);
  return true;
-- With a deadlock_timeout below 100 ms PostgreSQL may detect a deadlock first. Releasing the gates resolves it.
exception when lock_not_available or deadlock_detected then
  -- The subtransaction has released the gates and restored lock_timeout.
  return false;
end
$postcommit$;
