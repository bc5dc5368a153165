-- Defers the backlog of keys whose deliveries are slow, while the relay delivers what it has claimed of them: otherwise that
-- backlog fills the relay's buffer and every other aggregate waits. Each event is deferred by one millisecond per event of the
-- backlog, so that a thousand rows are touched per second however long the backlog is, and a relay that takes over from a
-- crashed one waits at most `rows_max` milliseconds. undefer_keys() ends it early. Returns the keys that were deferred.
--
-- A backlog below `long_backlog` events is left alone. It is counted before anything is locked, because a lock is a write.
create or replace function :"schema".defer_keys(keys bigint[], rows_max integer, long_backlog integer) returns bigint[]
language plpgsql set search_path = pg_catalog, pg_temp set row_security = off set lock_timeout = '7s'
set enable_seqscan = off set enable_bitmapscan = off set plan_cache_mode = force_generic_plan set jit = off
as $postcommit$
#variable_conflict use_column
declare
  deferred_keys bigint[];
begin
  with long as materialized (
    select k.key, n.count from unnest(keys) as k(key) cross join lateral (
      select count(*) as count from (
        select from :"schema".outbox_queue q
         where q.key = k.key and q.claimed_by is null and not q.blocking and (q.available_at is null or q.available_at <= now())
         limit rows_max
      ) ready
    ) n
     where n.count >= long_backlog
  ), backlog as materialized (
    select q.seq, long.key from long cross join lateral (
      select q.seq from :"schema".outbox_queue q
       where q.key = long.key and q.claimed_by is null and not q.blocking
         and (q.available_at is null or q.available_at <= now())
       order by q.seq limit rows_max for update skip locked
    ) q
  ), deferred as (
    update :"schema".outbox_queue q set available_at = now() + long.count * interval '1 millisecond'
      from long where q.key = long.key and q.seq = any (array(select seq from backlog))
  )
  select array(select distinct key from backlog) into deferred_keys;
  return deferred_keys;
end
$postcommit$;
