-- Emits one event if the transaction has already written something, and sets `written` to 'yes'. Otherwise it writes nothing, and
-- the transaction stays usable.
--
-- For a client that cannot be sure that its transaction is still open. Outside of a transaction block no transaction id is assigned
-- yet, because this statement is the first of its transaction. Separate from emit_one(), because returning a result would cost every
-- event 15 us.
--
-- requires: emit_one
create or replace procedure :"schema".emit_one_if_writing(
  id text, aggregate_type text, aggregate_id text, event_type text, schema_version text, ordering_key text,
  payload text, headers text, available_at text, delay_ms text, serialise text, queue text, inout written text
)
language plpgsql set search_path = pg_catalog, pg_temp as $postcommit$
begin
  if pg_current_xact_id_if_assigned() is not null then
    call :"schema".emit_one(id, aggregate_type, aggregate_id, event_type, schema_version, ordering_key, payload, headers,
                            available_at, delay_ms, serialise, null::text, queue);
    written := 'yes';
  end if;
end
$postcommit$;
