-- Keeps two spare partitions ahead, and opens the next one when the calendar unit (UTC) has changed, when the current one is
-- missing, or on request. Any number of relays may call it, also twice: they take turns, and the sequence only moves up.
--
-- A transaction that wrote to the log before a partition was attached may not notice it until it ends: a seq of that partition
-- would go to the default one, which rejects it, and the transaction would fail. So a partition is opened only after all
-- transactions have ended that were writing when it became visible. A partition that is created ahead is ready long before it
-- is needed.
--
-- requires: create_partition, has_partition, require_read_committed
create or replace function :"schema".rotate_partitions(asked boolean default false) returns jsonb
language plpgsql security definer set search_path = pg_catalog, pg_temp
set row_security = off set lock_timeout = '2s' as $postcommit$
declare
  room constant bigint := 1000000000000;
  unit text := (select value from :"schema".outbox_settings where name = 'partitions');
  sequence regclass;
  current bigint;
  drawn boolean;
  present boolean;
  next bigint;
  spares bigint[];
  created bigint[] := '{}';
  writing text[];
  waiting boolean := false;
  opened bigint;
  failed text;
  failed_as text;
begin
  if unit is null then
    return jsonb_build_object('unit', 'none');
  end if;
  perform :"schema".require_read_committed('partitions can be changed');
  perform pg_advisory_xact_lock(hashtextextended('postcommit.partitions', hashtextextended(:'schema', 0)));
  sequence := pg_get_serial_sequence(format('%I.outbox_events', :'schema'), 'seq')::regclass;
  -- Without a process it is a prepared transaction, which writes no more.
  writing := array(
    select distinct l.virtualtransaction from pg_locks l
     where l.locktype = 'relation' and l.granted and l.mode = 'RowExclusiveLock' and l.pid <> pg_backend_pid()
       and l.database = (select oid from pg_database where datname = current_database())
       and l.relation = :'schema.outbox_events'::regclass);
  update :"schema".outbox_partitions
     set awaits = case when awaits is null then writing
                       else array(select unnest(awaits) intersect select unnest(writing)) end
   where dropped_at is null and awaits is distinct from '{}';
  for pass in 1 .. 2 loop
    execute format('select last_value / %s, is_called from %s', room, sequence) into current, drawn;
    -- After logical replication: events would go into closed or dropped partitions.
    if current < (select max(number) from :"schema".outbox_partitions where opened_at is not null) then
      raise exception 'the sequence of the log is behind its open partition' using
        errcode = 'PC002', hint = 'Run npx postcommit migrate, which moves it up.';
    end if;
    -- The sequence decides: unlike outbox_partitions, it is not rolled back with a transaction that moved it and failed.
    update :"schema".outbox_partitions set opened_at = coalesce(opened_at, now()), closed_at = now()
     where number < current and closed_at is null;
    update :"schema".outbox_partitions set opened_at = now() where number = current and opened_at is null;
    -- Opened by a clock that was far ahead: it would be kept until that time.
    update :"schema".outbox_partitions set closed_at = now() where closed_at > now() + interval '1 hour';
    spares := '{}';
    next := current;
    while cardinality(spares) < 2 and failed is null loop
      next := next + 1;
      if not :"schema".has_partition(next) then
        begin
          perform :"schema".create_partition(next);
          created := created || next;
        exception
          when duplicate_table then
            -- An operator detached it: the table is theirs now, and its seqs stay unused.
            if next > current + 100 then
              failed := sqlerrm; failed_as := sqlstate;
            end if;
            continue;
          when others then
            failed := sqlerrm; failed_as := sqlstate;
            continue;
        end;
      end if;
      spares := spares || next;
    end loop;

    present := :"schema".has_partition(current);
    exit when opened is not null or cardinality(spares) = 0;
    if not asked and present then
      exit when (select date_trunc(unit, opened_at at time zone 'UTC') = date_trunc(unit, now() at time zone 'UTC')
                   from :"schema".outbox_partitions where number = current and opened_at is not null);
      if not drawn then
        -- Nothing was written since it was opened, so it is reused for the new unit.
        update :"schema".outbox_partitions set opened_at = now() where number = current;
        exit;
      end if;
    end if;
    waiting := (select awaits is distinct from '{}' from :"schema".outbox_partitions where number = spares[1]);
    exit when waiting;
    opened := spares[1];
    perform setval(sequence, opened * room, false);
  end loop;
  return jsonb_build_object(
    'unit', unit, 'current', coalesce(opened, current), 'opened', opened, 'created', created,
    'waiting', waiting, 'missing', case when not present and opened is null then current end,
    'error', failed, 'errorCode', failed_as);
end
$postcommit$;
revoke execute on function :"schema".rotate_partitions(boolean) from public;
