-- Conversion, step 1: adds a constraint that all rows fit the first partition, without reading them. Step 2 validates it, which
-- blocks no writer.
--
-- requires: find_partitioning_obstacle, require_read_committed
create or replace function :"schema".constrain_log() returns void
language plpgsql security definer set search_path = pg_catalog, pg_temp
set row_security = off set lock_timeout = '200ms' as $postcommit$
declare
  obstacle text;
  last bigint;
begin
  perform :"schema".require_read_committed('partitions can be changed');
  perform pg_advisory_xact_lock(hashtextextended('postcommit.partitions', hashtextextended(:'schema', 0)));
  if (select relkind = 'p' from pg_class where oid = :'schema.outbox_events'::regclass) then
    return;
  end if;
  -- Checked before anything changes.
  obstacle := :"schema".find_partitioning_obstacle(array[:'schema.outbox_events'::regclass,
                                                         :'schema.outbox_deliveries'::regclass]);
  if obstacle is not null then
    raise exception '%', obstacle using errcode = 'dependent_objects_still_exist';
  end if;
  execute format('select last_value from %s', pg_get_serial_sequence(format('%I.outbox_events', :'schema'), 'seq')) into last;
  if greatest(last, (select max(seq) from :"schema".outbox_events)) >= 1000000000000 then
    raise exception 'the log has seqs from 10^12 on, more than its first partition may hold' using
      errcode = 'dependent_objects_still_exist';
  end if;
  if not exists (select from pg_constraint where conrelid = :'schema.outbox_events'::regclass
                                             and conname = 'outbox_events_bound') then
    alter table :"schema".outbox_events add constraint outbox_events_bound
      check (seq >= 0 and seq < 1000000000000) not valid;
  end if;
  if not exists (select from pg_constraint where conrelid = :'schema.outbox_deliveries'::regclass
                                             and conname = 'outbox_deliveries_bound') then
    alter table :"schema".outbox_deliveries add constraint outbox_deliveries_bound
      check (lower(seqs) is not null and lower(seqs) >= 0 and lower(seqs) < 1000000000000) not valid;
  end if;
end
$postcommit$;
revoke execute on function :"schema".constrain_log() from public;
