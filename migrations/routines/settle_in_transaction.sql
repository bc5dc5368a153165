-- Settles an event in the transaction in which a handler has worked, for the relay that claimed it, so that the effects of the
-- handler and the delivery commit together. With `targets`, all that have the event, the handler was the last target: the
-- event leaves the queue as in settle(). Without, other targets are still under way, and only the progress is recorded: no
-- relay calls this handler with this event again.
--
-- Returns 'settled', 'fenced' if this relay does not own the event any more (G5), or 'ended' if this is not the transaction that the
-- relay began: the handler has ended that one itself. The caller rolls back in both cases.
--
-- The settings are those of claim_many(), for the same reasons.
--
-- requires: settle
create or replace function :"schema".settle_in_transaction(relay bigint, seq bigint, handler text, targets jsonb, marker text)
returns text
language plpgsql set search_path = pg_catalog, pg_temp set row_security = off
set enable_seqscan = off set enable_bitmapscan = off set plan_cache_mode = force_generic_plan set jit = off
as $postcommit$
begin
  if current_setting('postcommit.handler', true) is distinct from marker then
    return 'ended';
  end if;
  if targets is not null then
    return case cardinality(:"schema".settle(relay, array[settle_in_transaction.seq], array[1], jsonb_build_array(targets)))
             when 0 then 'settled' else 'fenced' end;
  end if;
  update :"schema".outbox_queue q set done = array_remove(q.done, handler) || handler
   where q.seq = settle_in_transaction.seq and q.claimed_by = relay;
  return case when found then 'settled' else 'fenced' end;
end
$postcommit$;
