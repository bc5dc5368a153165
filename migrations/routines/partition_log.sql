-- Conversion, last step: the log becomes partition 0 of a new table of the same name, and so does the record. One short
-- transaction; after constrain_log() and its validation no row is read. Partition 0 is closed and number 1 opened, unless nothing
-- was ever emitted: then 0 stays open. Returns whether anything was converted.
--
-- requires: copies_of, create_leaf, create_partition, grants_of, find_partitioning_obstacle, require_read_committed, dependent_views
create or replace function :"schema".partition_log(unit text) returns boolean
language plpgsql security definer set search_path = pg_catalog, pg_temp
set row_security = off set lock_timeout = '200ms' as $postcommit$
declare
  room constant bigint := 1000000000000;
  events regclass;
  deliveries regclass;
  parent text;
  leaf text;
  given regclass;
  statements text[];
  views text[];
  statement text;
  one record;
  drawn boolean;
  begun timestamptz;
begin
  if unit not in ('day', 'month') then
    raise exception 'partitions are by day or by month' using errcode = 'invalid_parameter_value';
  end if;
  perform :"schema".require_read_committed('partitions can be changed');
  perform pg_advisory_xact_lock(hashtextextended('postcommit.partitions', hashtextextended(:'schema', 0)));
  insert into :"schema".outbox_settings as s (name, value) values ('partitions', unit)
    on conflict (name) do update set value = excluded.value, changed_at = now() where s.value <> excluded.value;
  -- Read after the lock is granted: the previous holder may have replaced the tables of these names.
  events := :'schema.outbox_events'::regclass;
  deliveries := :'schema.outbox_deliveries'::regclass;
  if (select relkind = 'p' from pg_class where oid = events) then
    return false;
  end if;
  lock table :"schema".outbox_deliveries, :"schema".outbox_events in access exclusive mode;
  statement := :"schema".find_partitioning_obstacle(array[events, deliveries]);
  if statement is not null then
    raise exception '%', statement using errcode = 'dependent_objects_still_exist';
  end if;
  views := :"schema".dependent_views(array[events, deliveries]);
  execute format('select is_called or last_value > 1 from %s', pg_get_serial_sequence(events::text, 'seq')) into drawn;
  begun := (select created_at from :"schema".outbox_events order by seq limit 1);

  foreach given in array array[deliveries, events] loop
    parent := (select relname from pg_class where oid = given);
    leaf := parent || '_p0';
    statements := :"schema".copies_of(given);
    for one in select tgname from pg_trigger where tgrelid = given and not tgisinternal loop
      execute format('drop trigger %I on %s', one.tgname, given);
    end loop;
    if parent = 'outbox_events' then
      execute format('alter table %s alter seq drop identity', given);
    end if;
    for one in select indexrelid::regclass as index, c.relname as name
                 from pg_index join pg_class c on c.oid = indexrelid where indrelid = given loop
      execute format('alter index %s rename to %I', one.index, left(
        leaf || case when starts_with(one.name, parent) then substr(one.name, length(parent) + 1)
                     else '_' || one.name end, 63));
    end loop;
    execute format('alter table %s rename to %I', given, leaf);
    execute format('create table %1$I.%2$I (like %1$I.%3$I including defaults including constraints including comments
                    including generated including storage including compression) partition by range (%4$s)',
                   :'schema', parent, leaf, case parent when 'outbox_events' then 'seq' else '(lower(seqs))' end);
    execute format('alter table %I.%I drop constraint if exists %I', :'schema', parent, parent || '_bound');
    if parent = 'outbox_events' then
      execute format('alter table %I.%I alter seq add generated always as identity (start with %s)',
                     :'schema', parent, case when drawn then room else 1 end);
    end if;
    foreach statement in array statements || :"schema".grants_of(given, parent) loop
      execute statement;
    end loop;
    execute format('alter table %1$I.%2$I attach partition %1$I.%3$I for values from (0) to (%4$s)',
                   :'schema', parent, leaf, room);
    execute format('alter table %I.%I drop constraint if exists %I', :'schema', leaf, parent || '_bound');
    perform :"schema".create_leaf(parent, parent || '_default');
    execute format('alter table %1$I.%2$I attach partition %1$I.%3$I default', :'schema', parent, parent || '_default');
  end loop;

  foreach statement in array views loop
    execute statement;
  end loop;
  insert into :"schema".outbox_partitions (number, awaits, opened_at, closed_at)
    values (0, '{}', coalesce(begun, now()), case when drawn then now() end);
  if drawn then
    perform :"schema".create_partition(1);
    update :"schema".outbox_partitions set opened_at = now(), awaits = '{}' where number = 1;
  end if;
  return true;
end
$postcommit$;
revoke execute on function :"schema".partition_log(text) from public;
