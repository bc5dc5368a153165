-- Emits one event, the common case, in half the time that emit(jsonb) takes for a list of one. A procedure, because CALL needs
-- no plan. All parameters are text, because every driver passes text unchanged.
--
-- requires: key_hash, lock_keys
create or replace procedure :"schema".emit_one(
  id text, aggregate_type text, aggregate_id text, event_type text, schema_version text, ordering_key text,
  payload text, headers text, available_at text, delay_ms text, serialise text, mark text,
  queue text default null
)
language plpgsql set search_path = pg_catalog, pg_temp as $postcommit$
#variable_conflict use_variable
declare
  locked boolean;
begin
  if mark <> coalesce(current_setting('postcommit.mark', true), '') then
    raise exception 'the transaction to emit in has already ended' using errcode = 'no_active_sql_transaction';
  end if;
  if serialise <> 'false' then
    -- Assigned, not performed: PL/pgSQL evaluates an expression without a statement of its own, which takes 5 us.
    locked := :"schema".lock_keys(array[:"schema".key_hash(aggregate_type, aggregate_id, ordering_key)]) is not null;
  end if;
  insert into :"schema".outbox_events
    (id, aggregate_type, aggregate_id, event_type, schema_version, ordering_key, payload, headers, available_at, queue)
    values (id::uuid, aggregate_type, aggregate_id, event_type, schema_version::integer, ordering_key, payload::jsonb,
            headers::jsonb, case when delay_ms is null then available_at::timestamptz
              else clock_timestamp() + delay_ms::double precision * interval '1 millisecond' end, nullif(queue, 'default'));
end
$postcommit$;
