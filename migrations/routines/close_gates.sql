-- Takes all 16 gates (exclusive) within 100 ms, or none of them. Returns whether it has them. lock_keys() explains the gates and
-- the limit. The exception block is a subtransaction, so a failure releases the gates that were taken and restores lock_timeout.
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
-- With a deadlock_timeout below 100 ms PostgreSQL may find a deadlock before the time is up. Letting go of the gates resolves it.
exception when lock_not_available or deadlock_detected then
  -- The gates that were closed are open again, and lock_timeout is as it was.
  return false;
end
$postcommit$;
