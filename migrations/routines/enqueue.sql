-- Trigger function of outbox_events: adds each inserted event to the queue, whichever client inserted it. SECURITY DEFINER, so
-- that a role that may only insert events can emit.
--
-- EXECUTE is revoked: a trigger does not need it. A role that could call the function could attach it to a table of its own and
-- write anything into the queue, or have a cast of its own run with the owner's rights.
--
-- requires: key_hash
create or replace function :"schema".enqueue() returns trigger
language plpgsql security definer set search_path = pg_catalog, pg_temp as $postcommit$
begin
  insert into :"schema".outbox_queue (seq, key, available_at, queue)
    select seq, :"schema".key_hash(aggregate_type, aggregate_id, ordering_key), available_at, coalesce(queue, 'default') from emitted;
  return null;
end
$postcommit$;
revoke execute on function :"schema".enqueue() from public;
