-- Emits an array of events in the caller's transaction, in one round trip. All key locks are taken before any seq is drawn. A
-- function rather than a client statement, because PL/pgSQL caches plans per session without named prepared statements, which
-- transaction poolers do not support.
--
-- A client that cannot be sure that its transaction is still open marks it first (a local setting that ends with the
-- transaction) and passes the marker: outside of a transaction the events would commit on their own.
--
-- requires: key_hash, lock_keys
create or replace function :"schema".emit(events jsonb, serialise boolean default true, mark text default null) returns void
language plpgsql set search_path = pg_catalog, pg_temp as $postcommit$
begin
  if mark is not null and mark is distinct from current_setting('postcommit.mark', true) then
    raise exception 'the transaction to emit in has already ended' using errcode = 'no_active_sql_transaction';
  end if;
  if serialise then
    perform :"schema".lock_keys(array(
      select :"schema".key_hash(e.aggregate_type, e.aggregate_id, e.ordering_key)
        from jsonb_to_recordset(events) as e(aggregate_type text, aggregate_id text, ordering_key text)));
  end if;
  insert into :"schema".outbox_events
    (id, aggregate_type, aggregate_id, event_type, schema_version, ordering_key, payload, headers, available_at, queue,
     attempts_max)
    select coalesce(e.id, gen_random_uuid()), e.aggregate_type, e.aggregate_id, e.event_type,
           coalesce(e.schema_version, 1), e.ordering_key, coalesce(e.payload, 'null'), coalesce(e.headers, '{}'),
           case when e.delay_ms is null then e.available_at
                else clock_timestamp() + e.delay_ms * interval '1 millisecond' end,
           nullif(e.queue, 'default'), e.attempts_max
      from jsonb_to_recordset(events) as e(
        id uuid, aggregate_type text, aggregate_id text, event_type text, schema_version integer,
        ordering_key text, payload jsonb, headers jsonb, available_at timestamptz, delay_ms double precision,
        queue text, attempts_max integer);
end
$postcommit$;

-- For one event, called from SQL: select postcommit.emit('order.created', 'order', '42', '{"total": 9}').
create or replace function :"schema".emit(
  event_type text, aggregate_type text, aggregate_id text, payload jsonb,
  headers jsonb default '{}', id uuid default gen_random_uuid(), schema_version integer default 1,
  ordering_key text default null, available_at timestamptz default null, queue text default null,
  attempts_max integer default null
) returns uuid
language plpgsql set search_path = pg_catalog, pg_temp as $postcommit$
#variable_conflict use_variable
begin
  perform :"schema".lock_keys(array[:"schema".key_hash(aggregate_type, aggregate_id, ordering_key)]);
  insert into :"schema".outbox_events as e
    (id, aggregate_type, aggregate_id, event_type, schema_version, ordering_key, payload, headers, available_at, queue,
     attempts_max)
    values (id, aggregate_type, aggregate_id, event_type, schema_version, ordering_key, payload, headers, available_at,
            nullif(queue, 'default'), attempts_max);
  return id;
end
$postcommit$;
