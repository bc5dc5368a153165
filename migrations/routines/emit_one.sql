-- Emits one event, the common case, in half the time that emit(jsonb) takes for a list of one. A procedure, because CALL needs
-- no plan. All parameters are text, because every driver passes text unchanged.
--
-- The first key of a transaction is locked here, as lock_keys would do it: the transaction has no locks yet, so the key is not
-- locked already and there are not too many. CASE evaluates its arms in order: the gate, then the key. The `last` event of a
-- transaction is not remembered: the transaction locks no other key, and may lock this one twice.
--
-- requires: key_hash, lock_keys
create or replace procedure :"schema".emit_one(
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
    raise exception 'the transaction to emit in has already ended' using errcode = 'no_active_sql_transaction';
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
