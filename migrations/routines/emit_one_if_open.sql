-- Emits one event if the transaction is certainly open, for a client that cannot be sure of it. `state` tells what happened.
--
-- First call, with a new marker in `state` and `known` NULL: if the transaction has written something before, the event is written,
-- and `state` is 'written'. Outside of a transaction block no transaction id is assigned yet, because this statement is the first of its
-- transaction. Otherwise the transaction is marked, and `state` is its marker: it keeps the first one it got. Outside of a
-- transaction block the marker does not outlive the statement.
--
-- Second call, with that marker in `known`: 'written', or 'ended' if the transaction that was marked has ended.
--
-- It never fails for that reason: by the second call a pool may have given the connection to another caller, whose transaction must
-- neither get the event nor fail. Separate from emit_one(), because returning a result would cost every event 15 us.
--
-- requires: emit_one
create or replace procedure :"schema".emit_one_if_open(
  id text, aggregate_type text, aggregate_id text, event_type text, schema_version text, ordering_key text,
  payload text, headers text, available_at text, delay_ms text, serialise text, queue text, known text, inout state text
)
language plpgsql set search_path = pg_catalog, pg_temp as $postcommit$
declare
  mark constant text := nullif(current_setting('postcommit.mark', true), '');
begin
  if known is null and pg_current_xact_id_if_assigned() is null then
    state := set_config('postcommit.mark', coalesce(mark, state), true);
  elsif known is null or known = mark then
    call :"schema".emit_one(id, aggregate_type, aggregate_id, event_type, schema_version, ordering_key, payload, headers,
                            available_at, delay_ms, serialise, null::text, queue);
    state := 'written';
  else
    state := 'ended';
  end if;
end
$postcommit$;
