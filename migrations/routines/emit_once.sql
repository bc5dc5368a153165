-- Emits the events of an array whose ids are not in the log, and returns their ids. Existing events are not changed. Every
-- event needs an id. Ids are locked before keys, so that two calls do not deadlock. If the same id is inserted by other means
-- at the same time, the unique index of the partition rejects the later one.
--
-- requires: key_hash, lock_keys, lock_new_ids
create or replace function :"schema".emit_once(events jsonb, serialise boolean default true) returns uuid[]
language plpgsql set search_path = pg_catalog, pg_temp as $postcommit$
declare
  fresh uuid[];
  written uuid[] := '{}';
  one record;
  inserted bigint;
begin
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
      ordering_key text, payload jsonb, headers jsonb, available_at timestamptz, delay_ms double precision, queue text,
      attempts_max integer)
     where e.id = any (fresh)
  loop
    -- The same id appears twice in this call: another partition may have been opened meanwhile.
    continue when one.id = any (written);
    insert into :"schema".outbox_events
      (id, aggregate_type, aggregate_id, event_type, schema_version, ordering_key, payload, headers, available_at, queue,
       attempts_max)
      values (one.id, one.aggregate_type, one.aggregate_id, one.event_type, coalesce(one.schema_version, 1),
              one.ordering_key, coalesce(one.payload, 'null'), coalesce(one.headers, '{}'),
              case when one.delay_ms is null then one.available_at
                   else clock_timestamp() + one.delay_ms * interval '1 millisecond' end,
              nullif(one.queue, 'default'), one.attempts_max)
      on conflict do nothing;
    get diagnostics inserted = row_count;
    if inserted > 0 then
      written := written || one.id;
    end if;
  end loop;
  return written;
end
$postcommit$;

-- For one event, called from SQL. Returns true if it was written, false if the log already has an event with this id:
-- select postcommit.emit_once('0192f0c1-8f57-7000-8000-000000000001', 'order.created', 'order', '42', '{"total": 9}')
create or replace function :"schema".emit_once(
  id uuid, event_type text, aggregate_type text, aggregate_id text, payload jsonb,
  headers jsonb default '{}', schema_version integer default 1, ordering_key text default null,
  available_at timestamptz default null, queue text default null,
  attempts_max integer default null
) returns boolean
language plpgsql set search_path = pg_catalog, pg_temp as $postcommit$
#variable_conflict use_variable
begin
  return cardinality(:"schema".emit_once(jsonb_build_array(jsonb_build_object(
    'id', id, 'event_type', event_type, 'aggregate_type', aggregate_type, 'aggregate_id', aggregate_id,
    'payload', payload, 'headers', headers, 'schema_version', schema_version, 'ordering_key', ordering_key,
    'available_at', available_at, 'queue', queue, 'attempts_max', attempts_max)))) > 0;
end
$postcommit$;
