-- Emitting costs less. What a business transaction pays for an event is mostly the server's CPU: the statement around
-- it, the PL/pgSQL expressions (each is set up anew in every transaction), the trigger, the insert itself.

-- Only its trigger needs it, which asks for no right. Whoever may call it can put it on a table of his own, and have
-- anything written into the queue, or a cast of his own run with the owner's rights.
revoke execute on function :"schema".enqueue() from public;

-- Emits one event, the common case, in half the time that emit(jsonb) takes for a list of one. A procedure, because CALL
-- needs no plan, and all parameters are text, so that every driver passes them on unchanged.
--
-- The first key of a transaction is locked right here, as lock_keys would do it: nothing is held yet, so neither can it
-- be held already, nor is it too many. The arms of CASE are evaluated in their order: the gate, then the key. The
-- `last` event of a transaction need not be remembered: nobody in it locks another key, and this one may be locked twice.
create procedure :"schema".emit_one(
  id text, aggregate_type text, aggregate_id text, event_type text, schema_version text, ordering_key text,
  payload text, headers text, available_at text, delay_ms text, serialise text, mark text
)
language plpgsql set search_path = pg_catalog, pg_temp as $postcommit$
#variable_conflict use_variable
declare
  key bigint;
  held text;
  locked boolean;
begin
  if mark <> coalesce(current_setting('postcommit.mark', true), '') then
    raise exception 'the transaction that was to emit has ended' using errcode = 'no_active_sql_transaction';
  end if;
  if serialise <> 'false' then
    key := :"schema".key_hash(aggregate_type, aggregate_id, ordering_key) # hashtextextended(:'schema', 0);
    if serialise = 'last' then
      locked := case
        when key is null then true
        when pg_advisory_xact_lock_shared(
          1886352483 + (hashtextextended(:'schema', 0) & 1048575)::integer, pg_backend_pid() & 15) is null then false
        else pg_advisory_xact_lock(key) is not null end;
    elsif current_setting('postcommit.locked_keys', true) <> '' then
      perform :"schema".lock_keys(array[key # hashtextextended(:'schema', 0)]);
    else
      held := set_config('postcommit.locked_keys', case
        when key is null then ''
        when pg_advisory_xact_lock_shared(
          1886352483 + (hashtextextended(:'schema', 0) & 1048575)::integer, pg_backend_pid() & 15) is null then ''
        when pg_advisory_xact_lock(key) is null then ''
        else ',' || key || ',' end, true);
    end if;
  end if;
  insert into :"schema".outbox_events
    (id, aggregate_type, aggregate_id, event_type, schema_version, ordering_key, payload, headers, available_at)
    values (id::uuid, aggregate_type, aggregate_id, event_type, schema_version::integer, ordering_key, payload::jsonb,
            headers::jsonb, case when delay_ms is null then available_at::timestamptz
              else clock_timestamp() + delay_ms::double precision * interval '1 millisecond' end);
end
$postcommit$;

-- A transaction has its id before it draws a seq: the relays' low-water mark waits for the transactions that may still
-- bring a lower seq, and knows them by their ids (src/relay/lane/low-water.ts). Without this a row's seq is drawn first, and
-- its other values may take their time. The condition does it; it never holds, and the function is never called.
create trigger outbox_events_begin before insert on :"schema".outbox_events
  for each statement when (pg_current_xact_id() is null) execute function :"schema".enqueue();
alter table :"schema".outbox_events enable always trigger outbox_events_begin;

-- Locks ids until the transaction ends, and returns those that no event of the log has.
--
-- A unique index over the partitions of a log is impossible without the seq, so uniqueness comes from the lock: of two
-- transactions that emit one id once, the second looks when the first has ended, in whatever partition that has written.
-- It needs a snapshot that is younger than the lock, which only READ COMMITTED gives; in a log of one table the unique
-- index fails the later one of two such transactions (40001), in a partitioned one nothing would. The table cannot be
-- partitioned between the check and the insert, because looking for the ids locks it.
--
-- A lock has a class of its own and 32 bits of the id's hash, so that it can be told whose it is. Two ids with the same hash
-- wait for each other, and nothing else comes of it.
--
-- With the rights of its owner: an emitter cannot read the log, and learns here only whether an id exists.
create function :"schema".lock_new_ids(ids uuid[]) returns uuid[]
language plpgsql security definer set search_path = pg_catalog, pg_temp set row_security = off
set enable_seqscan = off set jit = off as $postcommit$
declare
  class constant integer := 1886352483 + 1048576 + (hashtextextended(:'schema', 0) & 1048575)::integer;
  lock_id integer;
  known uuid[];
begin
  if cardinality(ids) > 1000 then
    raise exception 'emit_once takes at most 1000 events in a call' using errcode = 'invalid_parameter_value';
  end if;
  -- In order, so that two calls do not deadlock.
  for lock_id in select distinct hashtext(i::text) as x from unnest(ids) i order by x loop
    perform pg_advisory_xact_lock(class, lock_id);
  end loop;
  known := array(select e.id from :"schema".outbox_events e where e.id = any (ids));
  if current_setting('transaction_isolation') <> 'read committed'
     and (select relkind = 'p' from pg_class where oid = format('%I.outbox_events', :'schema')::regclass) then
    raise exception 'emit_once on a partitioned log works under READ COMMITTED only' using
      errcode = 'invalid_transaction_state';
  end if;
  return array(select i from unnest(ids) i where i <> all (known));
end
$postcommit$;
revoke execute on function :"schema".lock_new_ids(uuid[]) from public;

-- Emits those events of an array whose ids are not in the log, and returns their ids. The others are left as they are. Every
-- event needs an id. The ids are locked first and the keys then, so that two calls do not deadlock. An event of the same id
-- that is written by other means at the same time is met by the unique index of its partition.
create function :"schema".emit_once(events jsonb, serialise boolean default true, mark text default null) returns uuid[]
language plpgsql set search_path = pg_catalog, pg_temp as $postcommit$
declare
  fresh uuid[];
  written uuid[] := '{}';
  one record;
  inserted bigint;
begin
  if mark is not null and mark is distinct from current_setting('postcommit.mark', true) then
    raise exception 'the transaction that was to emit has ended' using errcode = 'no_active_sql_transaction';
  end if;
  if exists (select from jsonb_to_recordset(events) as e(id uuid) where e.id is null) then
    raise exception 'emit_once needs the id of every event' using errcode = 'null_value_not_allowed';
  end if;
  fresh := :"schema".lock_new_ids(array(select e.id from jsonb_to_recordset(events) as e(id uuid)));
  if serialise then
    perform :"schema".lock_keys(array(
      select :"schema".key_hash(e.aggregate_type, e.aggregate_id, e.ordering_key)
        from jsonb_to_recordset(events) as e(id uuid, aggregate_type text, aggregate_id text, ordering_key text)
       where e.id = any (fresh)));
  end if;
  for one in
    select * from jsonb_to_recordset(events) as e(
      id uuid, aggregate_type text, aggregate_id text, event_type text, schema_version integer,
      ordering_key text, payload jsonb, headers jsonb, available_at timestamptz, delay_ms double precision)
     where e.id = any (fresh)
  loop
    -- The same id again in this call: another partition may have been opened meanwhile.
    continue when one.id = any (written);
    insert into :"schema".outbox_events
      (id, aggregate_type, aggregate_id, event_type, schema_version, ordering_key, payload, headers, available_at)
      values (one.id, one.aggregate_type, one.aggregate_id, one.event_type, coalesce(one.schema_version, 1),
              one.ordering_key, coalesce(one.payload, 'null'), coalesce(one.headers, '{}'),
              case when one.delay_ms is null then one.available_at
                   else clock_timestamp() + one.delay_ms * interval '1 millisecond' end)
      on conflict do nothing;
    get diagnostics inserted = row_count;
    if inserted > 0 then
      written := written || one.id;
    end if;
  end loop;
  return written;
end
$postcommit$;

-- The same for one event, to be called from SQL. True: it was written. False: the log has an event of this id.
-- select postcommit.emit_once('0192f0c1-8f57-7000-8000-000000000001', 'order.created', 'order', '42', '{"total": 9}')
create function :"schema".emit_once(
  id uuid, event_type text, aggregate_type text, aggregate_id text, payload jsonb,
  headers jsonb default '{}', schema_version integer default 1, ordering_key text default null,
  available_at timestamptz default null
) returns boolean
language plpgsql set search_path = pg_catalog, pg_temp as $postcommit$
#variable_conflict use_variable
begin
  return cardinality(:"schema".emit_once(jsonb_build_array(jsonb_build_object(
    'id', id, 'event_type', event_type, 'aggregate_type', aggregate_type, 'aggregate_id', aggregate_id,
    'payload', payload, 'headers', headers, 'schema_version', schema_version, 'ordering_key', ordering_key,
    'available_at', available_at)))) > 0;
end
$postcommit$;
