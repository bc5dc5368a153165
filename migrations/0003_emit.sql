-- Emitting costs less. What a business transaction pays for an event is mostly the server's CPU: the statement around
-- it, the PL/pgSQL expressions (each is set up anew in every transaction), the trigger, the insert itself.

-- Without a search_path of its own, which cost 9 us of each transaction: every name below is qualified, `emitted` is
-- found before any table of that name, and what key_hash calls was resolved when it was created.
create or replace function :"schema".enqueue() returns trigger
language plpgsql security definer as $postcommit$
begin
  insert into :"schema".outbox_queue (seq, key, available_at)
    select seq, :"schema".key_hash(aggregate_type, aggregate_id, ordering_key), available_at from emitted;
  return null;
end
$postcommit$;

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
language plpgsql as $postcommit$
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
-- bring a lower seq, and knows them by their ids (src/relay/low-water.ts). Without this a row's seq is drawn first, and
-- its other values may take their time. The condition does it; it never holds, and the function is never called.
create trigger outbox_events_begin before insert on :"schema".outbox_events
  for each statement when (pg_current_xact_id() is null) execute function :"schema".enqueue();
