-- Partitions: the log and the delivery record in pieces that retention drops whole, instead of deleting row by row.
--
-- By seq, not by time: a claim looks an event up by its seq alone, and a log that is partitioned by created_at would be
-- probed in every piece. Each partition has room for 10^12 seqs: number n holds n * 10^12 and up. What makes it a day or
-- a month is rotation: when the calendar unit is over, the sequence is moved on to the next partition's first seq. Writers
-- pay nothing for it, a clock that is set back or ahead only rotates late or early, and where the next partition cannot
-- be made, the sequence is not moved and writers go on in the one they have.
--
-- What has no partition, because somebody detached it by hand, goes into the default partition.
--
-- All functions here take short locks only: whoever waits for an ACCESS EXCLUSIVE lock makes every writer wait behind him.
-- They run with the rights of their owner, because only the owner of a table may attach to it or drop it; nobody else may
-- call them unless he is granted EXECUTE.

create table :"schema".outbox_settings (
  name       text primary key,
  value      text not null,
  changed_at timestamptz not null default now()
);
comment on table :"schema".outbox_settings is
  'What holds for the whole outbox. partitions: day or month; without a row the log is not partitioned.';

create table :"schema".outbox_partitions (
  number     bigint primary key,
  created_at timestamptz not null default now(),
  awaits     text[],
  opened_at  timestamptz,
  closed_at  timestamptz,
  checked_to bigint,
  dropped_at timestamptz
);
comment on table :"schema".outbox_partitions is
  'One row per partition: outbox_events_p<number> with its outbox_deliveries_p<number>.';
comment on column :"schema".outbox_partitions.awaits is
  'Transactions that may not know it yet: it is not opened before they have ended. NULL means that nobody has looked.';
comment on column :"schema".outbox_partitions.opened_at is 'Since when events go into it; NULL means that it is a spare.';
comment on column :"schema".outbox_partitions.closed_at is 'When the next one was opened. Retention counts from here.';
comment on column :"schema".outbox_partitions.checked_to is
  'Every event of the partition below this seq is delivered, queued, shelved or a dead letter: see check_partition().';
comment on column :"schema".outbox_partitions.dropped_at is
  'When it was dropped. The row stays until what is left of its events elsewhere (failures, given up dead letters) is gone.';

-- Whether a table of this name is a partition of the log or the record.
create function :"schema".is_attached(leaf text) returns boolean
language sql stable set search_path = pg_catalog, pg_temp as $postcommit$
  select exists (
    select from pg_inherits
     where inhrelid = to_regclass(format('%I.%I', :'schema', leaf))
       and inhparent in (to_regclass(format('%I.outbox_events', :'schema')),
                         to_regclass(format('%I.outbox_deliveries', :'schema'))))
$postcommit$;

create function :"schema".has_partition(n bigint) returns boolean
language sql stable set search_path = pg_catalog, pg_temp as $postcommit$
  select :"schema".is_attached('outbox_events_p' || n) and :"schema".is_attached('outbox_deliveries_p' || n)
$postcommit$;

-- What follows takes a lock and then looks at what others may have changed before: an older snapshot would not do.
create function :"schema".require_read_committed() returns void
language plpgsql set search_path = pg_catalog, pg_temp as $postcommit$
begin
  if current_setting('transaction_isolation') <> 'read committed' then
    raise exception 'partitions can only be changed under READ COMMITTED' using
      errcode = 'invalid_transaction_state',
      hint = 'Set default_transaction_isolation to ''read committed'' for this role.';
  end if;
end
$postcommit$;

-- Makes a table of the log or the record that can be attached; a name that is taken is an error.
create function :"schema".create_leaf(parent text, leaf text) returns void
language plpgsql set search_path = pg_catalog, pg_temp as $postcommit$
begin
  execute format('create table %1$I.%2$I (like %1$I.%3$I including defaults including constraints including comments
                  including generated including storage including compression)', :'schema', leaf, parent);
  -- An id can be unique within a partition only: an index over all of them would have to contain the seq. The default
  -- partition gathers dead letters of many, and so cannot promise even that.
  if leaf = 'outbox_events_default' then
    execute format('create index %I on %I.%I (id)', leaf || '_id_idx', :'schema', leaf);
  elsif parent = 'outbox_events' then
    execute format('create unique index %I on %I.%I (id)', leaf || '_id_key', :'schema', leaf);
  end if;
end
$postcommit$;

-- Makes a partition and attaches it. ATTACH lets writers go on, CREATE TABLE ... PARTITION OF would not.
create function :"schema".create_partition(n bigint) returns void
language plpgsql set search_path = pg_catalog, pg_temp set lock_timeout = '500ms' as $postcommit$
declare
  room constant bigint := 1000000000000;
  parent text;
  leaf text;
  options text;
begin
  foreach parent in array array['outbox_events', 'outbox_deliveries'] loop
    leaf := parent || '_p' || n;
    if not :"schema".is_attached(leaf) then
      perform :"schema".create_leaf(parent, leaf);
      -- What an operator has set on a partition, autovacuum say, goes on with the next.
      select array_to_string(c.reloptions, ', ') into options from pg_class c
       where c.relnamespace = to_regnamespace(quote_ident(:'schema')) and c.relispartition
         and c.relname ~ format('^%s_p\d+$', parent)
       order by length(c.relname) desc, c.relname desc limit 1;
      if options is not null then
        execute format('alter table %I.%I set (%s)', :'schema', leaf, options);
      end if;
      execute format('alter table %1$I.%2$I attach partition %1$I.%3$I for values from (%4$s) to (%5$s)',
                     :'schema', parent, leaf, n * room, (n + 1) * room);
    end if;
  end loop;
  insert into :"schema".outbox_partitions (number) values (n)
    on conflict (number) do update set created_at = now(), awaits = null;
end
$postcommit$;

-- Keeps two spare partitions ahead, and opens the next one when the calendar unit (of UTC) has changed, when the
-- current one is missing, or when asked to. Harmless if called twice, by any number of relays: they take turns, and the
-- sequence is only ever moved up.
--
-- A transaction that wrote to the log before a partition was attached may not notice it until it ends: a seq of that
-- partition would go to the default one, which refuses it, and the transaction would fail. So a partition is opened only
-- when all of those have ended that were writing at a moment when it was there for all to see. Made ahead, it is ready
-- long before its time.
create function :"schema".rotate_partitions(asked boolean default false) returns jsonb
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
  perform :"schema".require_read_committed();
  perform pg_advisory_xact_lock(hashtextextended('postcommit.partitions', hashtextextended(:'schema', 0)));
  sequence := pg_get_serial_sequence(format('%I.outbox_events', :'schema'), 'seq')::regclass;
  -- Without a process it is a prepared transaction, which writes no more.
  writing := array(
    select distinct l.virtualtransaction from pg_locks l
     where l.locktype = 'relation' and l.granted and l.mode = 'RowExclusiveLock' and l.pid <> pg_backend_pid()
       and l.database = (select oid from pg_database where datname = current_database())
       and l.relation = format('%I.outbox_events', :'schema')::regclass);
  update :"schema".outbox_partitions
     set awaits = case when awaits is null then writing
                       else array(select unnest(awaits) intersect select unnest(writing)) end
   where dropped_at is null and awaits is distinct from '{}';
  for pass in 1 .. 2 loop
    execute format('select last_value / %s, is_called from %s', room, sequence) into current, drawn;
    -- After logical replication: events would go into partitions that are closed or dropped.
    if current < (select max(number) from :"schema".outbox_partitions where opened_at is not null) then
      raise exception 'the sequence of the log is behind its open partition' using
        errcode = 'PC002', hint = 'Run postcommit migrate, which moves it up.';
    end if;
    -- The sequence decides. It does not go back with a transaction that moved it and failed, as the books do.
    update :"schema".outbox_partitions set opened_at = coalesce(opened_at, now()), closed_at = now()
     where number < current and closed_at is null;
    update :"schema".outbox_partitions set opened_at = now() where number = current and opened_at is null;
    -- By a clock that was far ahead: it would be kept until that time.
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
            -- Detached by hand: its table is somebody's now, and its room stays empty.
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
        -- Nothing was written since it was opened, so it can as well be the new unit's.
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

-- Orphans: events from `first` up to, but without, `beyond` that have neither a queue row, a shelf row, a dead letter nor a
-- delivery record. There are none unless the enqueue trigger did not fire (it was disabled) or someone deleted from the
-- queue by hand. No relay delivers an orphan, so retention must not remove it.
--
-- One statement, because events move between these tables at any moment. It looks for events only in the gaps between
-- the recorded seqs: 1,000,000 delivered events cost 16 ms where batches of 500 were settled, 1.7 s where every event was
-- settled alone. Each lookup is a scalar subquery with LIMIT: as joins, the planner may read the whole queue.
create function :"schema".find_orphans(first bigint, beyond bigint, orphans_max integer) returns setof bigint
language plpgsql stable set search_path = pg_catalog, pg_temp set row_security = off
set enable_seqscan = off set plan_cache_mode = force_custom_plan set jit = off as $postcommit$
begin
  return query
    with recorded as materialized (
      select coalesce(range_agg(r), '{}') as seqs
        from :"schema".outbox_deliveries d cross join lateral unnest(d.seqs) r
       where d.seqs && int8range(first, beyond) and r && int8range(first, beyond)
         and lower(d.seqs) >= first / 1000000000000 * 1000000000000 and lower(d.seqs) < beyond
    )
    select e.seq
      from recorded cross join lateral unnest(int8multirange(int8range(first, beyond)) - recorded.seqs) gap
     cross join lateral (
       select l.seq from :"schema".outbox_events l
        where l.seq >= lower(gap) and l.seq < upper(gap)
          and coalesce((select false from :"schema".outbox_queue x where x.seq = l.seq limit 1), true)
          and coalesce((select false from :"schema".outbox_shelf x where x.seq = l.seq limit 1), true)
          and coalesce((select false from :"schema".outbox_dead_letters x where x.seq = l.seq limit 1), true)
        order by l.seq limit orphans_max
     ) e
     order by e.seq limit orphans_max;
end
$postcommit$;

-- Looks for orphans in a closed partition, at most 2,000,000 seqs per call, and goes on where the last call ended. Returns why
-- the partition stays; NULL: every event in it is accounted for. What is checked stays checked: no seq is drawn from a closed
-- partition any more, and the lock waits for transactions that insert into it.
create function :"schema".check_partition(n bigint) returns jsonb
language plpgsql set search_path = pg_catalog, pg_temp as $postcommit$
declare
  beyond constant bigint := (n + 1) * 1000000000000;
  leaf constant text := 'outbox_events_p' || n;
  step constant bigint := 100000;
  reached bigint := coalesce((select checked_to from :"schema".outbox_partitions where number = n), n * 1000000000000);
  found bigint;
  orphans integer := 0;
begin
  if reached >= beyond or not :"schema".is_attached(leaf) then
    return null;
  end if;
  execute format('lock table only %I.%I in share mode', :'schema', leaf);
  for pass in 1 .. 20 loop
    execute format('select seq from %I.%I where seq >= $1 order by seq limit 1', :'schema', leaf) into found using reached;
    reached := coalesce(found, beyond);
    exit when reached >= beyond;
    orphans := (select count(*) from :"schema".find_orphans(reached, least(reached + step, beyond), 1000));
    exit when orphans > 0;
    reached := least(reached + step, beyond);
  end loop;
  update :"schema".outbox_partitions set checked_to = reached where number = n;
  if orphans > 0 then
    return jsonb_build_object('kept', 'orphans', 'count', orphans);
  elsif reached < beyond then
    return jsonb_build_object('kept', 'unchecked');
  end if;
  return null;
end
$postcommit$;

-- Drops a closed partition, log and record together, unless something in it is not delivered. Answers why not.
--
-- A drop needs ACCESS EXCLUSIVE locks on the whole log and record, for as long as it takes, which is milliseconds; who
-- cannot have them soon comes back later. Only with these locks the last look counts: an event cannot come, a dead letter
-- cannot be retried, and no event can be replayed, because all of these read or write the log first. Queue and shelf are
-- looked at in one statement, as events move between them, and the dead letters after that, as events come from there.
--
-- Dead letters that nobody has resolved survive: their events move to the default partition, which may hold them from
-- the moment the partition is detached. The insert is into that table itself, so that no trigger puts them into the queue.
create function :"schema".drop_partition(
  n bigint, keep_ms double precision default null, lock_timeout_ms integer default 200
) returns jsonb
language plpgsql security definer set search_path = pg_catalog, pg_temp
set row_security = off set lock_timeout = '200ms' as $postcommit$
declare
  first constant bigint := n * 1000000000000;
  beyond constant bigint := (n + 1) * 1000000000000;
  letters_max constant integer := 10000;
  letters_bytes_max constant integer := 4194304;
  columns text;
  part :"schema".outbox_partitions;
  undelivered bigint;
  letters bigint[];
  unsettled jsonb;
  leaf text;
begin
  perform :"schema".require_read_committed();
  perform set_config('lock_timeout', lock_timeout_ms::text, true);
  begin
    perform pg_advisory_xact_lock(hashtextextended('postcommit.partitions', hashtextextended(:'schema', 0)));
    select * into part from :"schema".outbox_partitions where number = n and dropped_at is null;
    if part.number is null then
      return jsonb_build_object('kept', 'unknown');
    elsif part.opened_at is null then
      return jsonb_build_object('kept', 'spare');
    elsif part.closed_at is null then
      return jsonb_build_object('kept', 'open');
    elsif keep_ms is not null and part.closed_at > now() - keep_ms * interval '1 millisecond' then
      return jsonb_build_object('kept', 'young', 'closedAt', part.closed_at);
    end if;

    -- Once before anybody has to wait for us, and once when nobody can change it any more.
    for look in 1 .. 2 loop
      select count(*) into undelivered from (
        (select from :"schema".outbox_queue where seq >= first and seq < beyond limit 1000)
        union all
        (select from :"schema".outbox_shelf where seq >= first and seq < beyond limit 1000)
      ) u;
      if undelivered > 0 then
        return jsonb_build_object('kept', 'undelivered', 'count', undelivered);
      end if;
      letters := array(select seq from :"schema".outbox_dead_letters
                        where seq >= first and seq < beyond and discarded_at is null limit letters_max + 1);
      -- They are copied while writers wait: not too many of them, nor too large.
      if cardinality(letters) > letters_max or letters_bytes_max < (
        select sum(pg_column_size(e.payload) + pg_column_size(e.headers)) from :"schema".outbox_events e
         where e.seq = any (letters) and e.seq >= first and e.seq < beyond) then
        return jsonb_build_object('kept', 'dead letters', 'count', cardinality(letters));
      end if;
      exit when look = 2;
      unsettled := :"schema".check_partition(n);
      if unsettled is not null then
        return unsettled;
      end if;
      -- Its own tables first: nobody writes there any more, so nobody waits while we do.
      foreach leaf in array array['outbox_deliveries_p' || n, 'outbox_events_p' || n] loop
        if :"schema".is_attached(leaf) then
          execute format('lock table only %I.%I in access exclusive mode', :'schema', leaf);
        end if;
      end loop;
      lock table only :"schema".outbox_deliveries, only :"schema".outbox_events in access exclusive mode;
    end loop;

    -- What was detached by hand is not ours to drop.
    if :"schema".is_attached('outbox_events_p' || n) then
      execute format('alter table %1$I.outbox_events detach partition %1$I.%2$I', :'schema', 'outbox_events_p' || n);
      if cardinality(letters) > 0 then
        columns := (select string_agg(quote_ident(attname), ', ' order by attnum) from pg_attribute
                     where attrelid = format('%I.outbox_events_p%s', :'schema', n)::regclass
                       and attnum > 0 and not attisdropped and attgenerated = '');
        execute format('insert into %1$I.outbox_events_default (%3$s) overriding system value
                        select %3$s from %1$I.%2$I where seq = any ($1)',
                       :'schema', 'outbox_events_p' || n, columns) using letters;
      end if;
      execute format('drop table %I.%I', :'schema', 'outbox_events_p' || n);
    end if;
    if :"schema".is_attached('outbox_deliveries_p' || n) then
      execute format('drop table %I.%I', :'schema', 'outbox_deliveries_p' || n);
    end if;
    update :"schema".outbox_partitions set dropped_at = now() where number = n;
    return jsonb_build_object('dropped', n, 'deadLetters', cardinality(letters));
  exception
    when lock_not_available or deadlock_detected then
      return jsonb_build_object('kept', 'locked');
    -- Something of somebody's stands on it, a view say. The partitions after it can be dropped all the same.
    when others then
      return jsonb_build_object('kept', 'failed', 'error', sqlerrm);
  end;
end
$postcommit$;

-- Removes what a dropped partition's events have left elsewhere, a bounded number of rows at a time. When nothing is left
-- the partition is forgotten. Answers how many rows it removed.
create function :"schema".sweep_partition(n bigint, rows_max integer default 10000) returns integer
language plpgsql security definer set search_path = pg_catalog, pg_temp
set row_security = off set lock_timeout = '2s' as $postcommit$
declare
  first constant bigint := n * 1000000000000;
  beyond constant bigint := (n + 1) * 1000000000000;
  failures integer;
  letters integer;
begin
  if not exists (select from :"schema".outbox_partitions where number = n and dropped_at is not null) then
    return 0;
  end if;
  delete from :"schema".outbox_failures where ctid = any (array(
    select f.ctid from :"schema".outbox_failures f
     where f.seq >= first and f.seq < beyond
       and not exists (select from :"schema".outbox_events e where e.seq = f.seq)
     limit rows_max));
  get diagnostics failures = row_count;
  delete from :"schema".outbox_dead_letters where seq = any (array(
    select d.seq from :"schema".outbox_dead_letters d
     where d.seq >= first and d.seq < beyond and d.discarded_at is not null
       and not exists (select from :"schema".outbox_events e where e.seq = d.seq)
     limit rows_max));
  get diagnostics letters = row_count;
  if failures = 0 and letters = 0 then
    delete from :"schema".outbox_partitions where number = n;
  end if;
  return failures + letters;
end
$postcommit$;

-- Conversion, first step: promises that all rows fit the first partition, without looking at them. Looking at them is the
-- second step, which blocks no writer: alter table ... validate constraint.
create function :"schema".bound_log() returns void
language plpgsql security definer set search_path = pg_catalog, pg_temp
set row_security = off set lock_timeout = '200ms' as $postcommit$
declare
  hindrance text;
  last bigint;
begin
  perform :"schema".require_read_committed();
  perform pg_advisory_xact_lock(hashtextextended('postcommit.partitions', hashtextextended(:'schema', 0)));
  if (select relkind = 'p' from pg_class where oid = format('%I.outbox_events', :'schema')::regclass) then
    return;
  end if;
  -- Before anything is changed.
  hindrance := :"schema".hindrance_of(array[format('%I.outbox_events', :'schema')::regclass,
                                            format('%I.outbox_deliveries', :'schema')::regclass]);
  if hindrance is not null then
    raise exception '%', hindrance using errcode = 'dependent_objects_still_exist';
  end if;
  execute format('select last_value from %s', pg_get_serial_sequence(format('%I.outbox_events', :'schema'), 'seq')) into last;
  if greatest(last, (select max(seq) from :"schema".outbox_events)) >= 1000000000000 then
    raise exception 'the log has seqs from 10^12 on, more than its first partition may hold' using
      errcode = 'dependent_objects_still_exist';
  end if;
  if not exists (select from pg_constraint where conrelid = format('%I.outbox_events', :'schema')::regclass
                                             and conname = 'outbox_events_bound') then
    alter table :"schema".outbox_events add constraint outbox_events_bound
      check (seq >= 0 and seq < 1000000000000) not valid;
  end if;
  if not exists (select from pg_constraint where conrelid = format('%I.outbox_deliveries', :'schema')::regclass
                                             and conname = 'outbox_deliveries_bound') then
    alter table :"schema".outbox_deliveries add constraint outbox_deliveries_bound
      check (lower(seqs) is not null and lower(seqs) >= 0 and lower(seqs) < 1000000000000) not valid;
  end if;
end
$postcommit$;

-- Takes the promise back, when the conversion is given up.
create function :"schema".unbound_log() returns void
language plpgsql security definer set search_path = pg_catalog, pg_temp set lock_timeout = '200ms' as $postcommit$
begin
  if (select relkind = 'p' from pg_class where oid = format('%I.outbox_events', :'schema')::regclass) then
    return;
  end if;
  alter table :"schema".outbox_events drop constraint if exists outbox_events_bound;
  alter table :"schema".outbox_deliveries drop constraint if exists outbox_deliveries_bound;
end
$postcommit$;

-- The second step, which may take its time. Somebody else may have converted the log meanwhile.
create function :"schema".validate_log() returns void
language plpgsql security definer set search_path = pg_catalog, pg_temp set lock_timeout = '2s' as $postcommit$
begin
  lock table only :"schema".outbox_deliveries, only :"schema".outbox_events in share update exclusive mode;
  if (select relkind = 'p' from pg_class where oid = format('%I.outbox_events', :'schema')::regclass) then
    return;
  end if;
  alter table :"schema".outbox_deliveries validate constraint outbox_deliveries_bound;
  alter table :"schema".outbox_events validate constraint outbox_events_bound;
end
$postcommit$;

-- The statements that give a new table what an old one of the same name has: indexes, triggers, comment. An index that
-- is unique without the partition's key cannot be had over all partitions.
create function :"schema".copies_of(given regclass) returns text[]
language sql stable set search_path = pg_catalog, pg_temp as $postcommit$
  select array(
    select format('alter table %s add constraint %I %s', given, conname, pg_get_constraintdef(oid))
      from pg_constraint where conrelid = given and contype = 'p'
    union all
    select pg_get_indexdef(indexrelid) from pg_index where indrelid = given and indisvalid and not indisunique
    union all
    select pg_get_triggerdef(oid) from pg_trigger where tgrelid = given and not tgisinternal
    union all
    select format('alter table %s %s trigger %I', given,
                  case tgenabled when 'D' then 'disable' when 'A' then 'enable always' else 'enable replica' end, tgname)
      from pg_trigger where tgrelid = given and not tgisinternal and tgenabled <> 'O'
    union all
    select format('comment on table %s is %L', given, obj_description(given, 'pg_class'))
     where obj_description(given, 'pg_class') is not null)
$postcommit$;

-- The statements that give a table the rights that others have on the given one.
create function :"schema".grants_of(given regclass, receiver text) returns text[]
language sql stable set search_path = pg_catalog, pg_temp as $postcommit$
  select array(
    select format('grant %s%s on %I.%I to %s%s', a.privilege_type, r.columns, :'schema', receiver,
                  case a.grantee when 0 then 'public' else quote_ident(pg_get_userbyid(a.grantee)) end,
                  case when a.is_grantable then ' with grant option' else '' end)
      from (select relacl as acl, '' as columns from pg_class where oid = given
            union all
            select attacl, format(' (%I)', attname) from pg_attribute where attrelid = given and not attisdropped) r
      cross join lateral aclexplode(r.acl) a
     where a.grantee <> (select relowner from pg_class where oid = given))
$postcommit$;

-- Views that read a table, as statements that make them read whatever has its name then.
create function :"schema".views_of(given regclass[]) returns text[]
language sql stable set search_path = pg_catalog, pg_temp as $postcommit$
  select array(
    select format('create or replace view %s%s as %s', v.oid::regclass,
                  coalesce(' with (' || array_to_string(v.reloptions, ', ') || ')', ''), pg_get_viewdef(v.oid))
      from pg_class v
     where v.relkind = 'v' and exists (
       select from pg_rewrite r join pg_depend d on d.classid = 'pg_rewrite'::regclass and d.objid = r.oid
        where r.ev_class = v.oid and d.refclassid = 'pg_class'::regclass and d.refobjid = any (given)))
$postcommit$;

-- What would go on reading the first partition as if it were the whole log.
create function :"schema".hindrance_of(given regclass[]) returns text
language sql stable set search_path = pg_catalog, pg_temp as $postcommit$
  select format('constraint %s of table %s refers to %s', conname, conrelid::regclass, confrelid::regclass)
    from pg_constraint where contype = 'f' and confrelid = any (given)
  union all
  select case v.relkind when 'm' then format('materialized view %s reads the log', v.oid::regclass)
                        else format('view %s reads the log and belongs to another role', v.oid::regclass) end
    from pg_class v join pg_rewrite r on r.ev_class = v.oid
    join pg_depend d on d.classid = 'pg_rewrite'::regclass and d.objid = r.oid
   where (v.relkind = 'm' or v.relkind = 'v' and not pg_has_role(v.relowner, 'usage'))
     and d.refclassid = 'pg_class'::regclass and d.refobjid = any (given)
  union all
  select format('row level security is on for %s', oid::regclass) from pg_class
   where oid = any (given) and relrowsecurity
  union all
  select format('a policy reads %s', d.refobjid::regclass) from pg_depend d
   where d.classid = 'pg_policy'::regclass and d.refclassid = 'pg_class'::regclass and d.refobjid = any (given)
  union all
  select format('function %s is bound to the log', d.objid::regprocedure) from pg_depend d
   where d.classid = 'pg_proc'::regclass and d.refclassid = 'pg_class'::regclass and d.refobjid = any (given)
  union all
  -- Its next call would fail: no unique index over all partitions has the id alone.
  select format('function %s inserts into the log with ON CONFLICT (id), which partitions do not allow; use emit_once',
                p.oid::regprocedure)
    from pg_proc p
   where p.prosrc ~* '\moutbox_events\M.*\mon\s+conflict\s*\(\s*id\s*\)'
     and p.pronamespace <> to_regnamespace(quote_ident(:'schema'))
  union all
  select format('rule %s of %s uses the log', r.rulename, r.ev_class::regclass) from pg_rewrite r
    join pg_class c on c.oid = r.ev_class and c.relkind in ('r', 'p')
    join pg_depend d on d.classid = 'pg_rewrite'::regclass and d.objid = r.oid
   where d.refclassid = 'pg_class'::regclass and d.refobjid = any (given)
  union all
  select format('constraint %s refers from %s', conname, conrelid::regclass) from pg_constraint
   where contype = 'f' and conrelid = any (given)
  union all
  select format('unique index %s cannot span partitions', indexrelid::regclass) from pg_index
   where indrelid = any (given) and indisunique and not indisprimary
     and indexrelid <> coalesce(to_regclass(format('%I.outbox_events_id_key', :'schema')), 0::oid)
  union all
  select format('%s is in the publication %s', r.prrelid::regclass, p.pubname)
    from pg_publication_rel r join pg_publication p on p.oid = r.prpubid where r.prrelid = any (given)
  limit 1
$postcommit$;

-- Conversion, last step: the log becomes partition 0 of a new table of the same name, and so does the record. Everything
-- in one short transaction; where bound_log() and its validation came before, no row is read. Partition 0 is closed and
-- number 1 opened, unless nothing was ever emitted: then 0 is the open one. Answers whether anything had to be converted.
create function :"schema".partition_log(unit text) returns boolean
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
  perform :"schema".require_read_committed();
  perform pg_advisory_xact_lock(hashtextextended('postcommit.partitions', hashtextextended(:'schema', 0)));
  insert into :"schema".outbox_settings as s (name, value) values ('partitions', unit)
    on conflict (name) do update set value = excluded.value, changed_at = now() where s.value <> excluded.value;
  -- Not before the lock: whoever had it may have put other tables under these names.
  events := format('%I.outbox_events', :'schema')::regclass;
  deliveries := format('%I.outbox_deliveries', :'schema')::regclass;
  if (select relkind = 'p' from pg_class where oid = events) then
    return false;
  end if;
  lock table :"schema".outbox_deliveries, :"schema".outbox_events in access exclusive mode;
  statement := :"schema".hindrance_of(array[events, deliveries]);
  if statement is not null then
    raise exception '%', statement using errcode = 'dependent_objects_still_exist';
  end if;
  views := :"schema".views_of(array[events, deliveries]);
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

revoke execute on function
  :"schema".require_read_committed(), :"schema".is_attached(text), :"schema".has_partition(bigint),
  :"schema".create_leaf(text, text), :"schema".create_partition(bigint), :"schema".check_partition(bigint),
  :"schema".rotate_partitions(boolean), :"schema".drop_partition(bigint, double precision, integer),
  :"schema".sweep_partition(bigint, integer), :"schema".bound_log(), :"schema".unbound_log(), :"schema".validate_log(),
  :"schema".copies_of(regclass), :"schema".grants_of(regclass, text), :"schema".views_of(regclass[]),
  :"schema".hindrance_of(regclass[]), :"schema".partition_log(text)
  from public;

-- The record of an event is looked for in its own partition only.
create or replace view :"schema".outbox_status as
select e.seq, e.id, e.aggregate_type, e.aggregate_id, e.event_type, e.schema_version, e.payload, e.headers,
       case
         when d.seq is not null then 'FAILED'
         when q.seq is not null and r.token is not null then 'PROCESSING'
         when q.seq is not null or h.attempts is not null then 'PENDING'
         when s.delivered_at is not null then 'SENT'
         else 'PENDING'
       end as status,
       coalesce(q.attempts, h.attempts, d.attempts, s.attempts - 1, 0) as retry_count,
       case when q.available_at < 'infinity' then q.available_at end as next_retry_at,
       e.created_at,
       s.delivered_at as published_at,
       f.error as last_error
  from :"schema".outbox_events e
  left join :"schema".outbox_queue q on q.seq = e.seq
  left join :"schema".outbox_relays r on r.token = q.claimed_by and r.ended_at is null
  left join :"schema".outbox_dead_letters d on d.seq = e.seq
  left join lateral (select x.attempts from :"schema".outbox_shelf x where x.seq = e.seq limit 1) h on true
  left join lateral (
    select x.delivered_at, x.attempts from :"schema".outbox_deliveries x
     where x.seqs @> e.seq
       and lower(x.seqs) >= e.seq / 1000000000000 * 1000000000000
       and lower(x.seqs) < (e.seq / 1000000000000 + 1) * 1000000000000
     order by x.delivered_at desc limit 1
  ) s on true
  left join lateral (
    -- By time first: a dead letter that is retried starts again at attempt 1.
    select x.error from :"schema".outbox_failures x
     where x.seq = e.seq order by x.failed_at desc, x.attempt desc limit 1
  ) f on true;
