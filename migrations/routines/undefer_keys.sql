-- Makes the next events of deferred keys ready again, at most `per_key_max` of each. Returns the keys that had any.
--
-- Skips events that have failed before, which wait for their retry, and events emitted with a delay. An event that actually
-- waits behind a failing one is made ready too; the next claim finds it blocked, and defer() defers it again.
--
-- COALESCE around the time keeps the planner from using the index on it: with statistics of a queue in which nothing waits,
-- that index looks better than the one on the key, and every waiting row would be read for each key.
create or replace function :"schema".undefer_keys(keys bigint[], per_key_max integer) returns bigint[]
language plpgsql set search_path = pg_catalog, pg_temp set row_security = off set lock_timeout = '7s'
set enable_seqscan = off set enable_bitmapscan = off set plan_cache_mode = force_generic_plan set jit = off
as $postcommit$
#variable_conflict use_column
declare
  undeferred_keys bigint[];
begin
  with deferred as materialized (
    select q.seq from unnest(keys) as k(key) cross join lateral (
      select q.seq from :"schema".outbox_queue q join :"schema".outbox_events e on e.seq = q.seq
       where q.key = k.key and q.claimed_by is null and not q.blocking and q.attempts = 0
         and coalesce(q.available_at, 'infinity') > now() and coalesce(q.available_at, 'infinity') < 'infinity'
         and (e.available_at is null or e.available_at <= now())
       order by q.seq limit per_key_max for update of q skip locked
    ) q
  ), changed as (
    update :"schema".outbox_queue q set available_at = null where q.seq = any (array(select seq from deferred))
    returning q.key
  )
  select array(select distinct key from changed) into undeferred_keys;
  return undeferred_keys;
end
$postcommit$;
