-- Gives a dead letter another payload and puts it back into the queue, as requeue() does. The log is not changed: the new
-- payload is a row of outbox_edits, and relays deliver the last one. Returns what requeue() returns, or NULL if the event is
-- not a dead letter, because another operator has retried it, or it was cancelled during a delivery that has not ended.
--
-- The event gets a new replay_id, so its deduplication id differs: a broker that stored the old payload in an attempt whose
-- response was lost would drop the new one as a duplicate. The dead letter is locked before the edit is written, so of two
-- operators who edit it, the second one finds it gone and writes nothing.
--
-- SECURITY DEFINER: an edit is the record of what an operator changed, and no operator may change it. Roles may read outbox_edits, and
-- write to it only with this function, which records the role that logged in beside the name that the operator gave.
--
-- requires: requeue
create or replace function :"schema".edit_dead_letter(event bigint, new_payload jsonb, operator text, why text) returns jsonb
language plpgsql security definer set search_path = pg_catalog, pg_temp set row_security = off as $postcommit$
begin
  update :"schema".outbox_dead_letters d set replay_id = (extract(epoch from clock_timestamp()) * 1000000)::bigint
   where d.seq = event and not exists (select from :"schema".outbox_cancellations c where c.seq = d.seq)
     and exists (select from :"schema".outbox_events e where e.seq = d.seq);
  if not found then
    return null;
  end if;
  insert into :"schema".outbox_edits (seq, number, payload, edited_by, database_role, reason)
    values (event, (select coalesce(max(x.number), 0) + 1 from :"schema".outbox_edits x where x.seq = event), new_payload,
            coalesce(nullif(operator, ''), session_user), session_user, nullif(why, ''));
  return :"schema".requeue(array[event]);
end
$postcommit$;
revoke execute on function :"schema".edit_dead_letter(bigint, jsonb, text, text) from public;
