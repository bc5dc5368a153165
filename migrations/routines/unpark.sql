-- Makes events ready that are parked (available_at 'infinity') behind a resolved dead letter: those of `keys`, in order of key
-- and seq, at most `rows_max`. Events behind the first dead letter that still blocks its key stay parked. Of the first key only
-- events after `after` are read, so that a long key can be processed in chunks: starting from its first row each time would be
-- quadratic. Returns the number of events, and the last key and its last seq.
--
-- One call for many keys: a call per key took 100 s for 100,000 keys. Rows are locked by key and seq, so two operators lock
-- them in the same order. See src/outbox/delivering/unpark.ts for why no event stays parked forever.
--
-- COALESCE around the time keeps the planner from using the index on it: with statistics of a queue in which nothing waits,
-- that index looks better than the one on the key, and every waiting row would be read for each key. The condition with it is that
-- of outbox_queue_parked_idx.
create or replace function :"schema".unpark(keys bigint[], after bigint, rows_max integer) returns jsonb
language plpgsql set search_path = pg_catalog, pg_temp set row_security = off set lock_timeout = '7s'
set enable_seqscan = off set enable_bitmapscan = off set plan_cache_mode = force_generic_plan set jit = off
as $postcommit$
#variable_conflict use_column
declare
  result jsonb;
begin
  with line as materialized (
    select k.key, case when k.key = keys[1] then unpark.after else 0 end as after, wall.seq as before
      from unnest(keys) as k(key)
      left join lateral (
        select q.seq from :"schema".outbox_queue q
         where q.key = k.key and q.blocking and coalesce(q.available_at, '-infinity') = 'infinity' order by q.seq limit 1
      ) wall on true
     order by k.key
  ), parked as materialized (
    select line.key, q.seq from line cross join lateral (
      select q.seq from :"schema".outbox_queue q
       where q.key = line.key and not q.blocking and q.seq > line.after and (line.before is null or q.seq < line.before)
         and coalesce(q.available_at, '-infinity') = 'infinity'
       order by q.seq limit rows_max for update
    ) q
     limit rows_max
  ), changed as (
    update :"schema".outbox_queue q set available_at = null where q.seq = any (array(select seq from parked))
  ), last as (
    select key, max(seq) as seq from parked group by key order by key desc limit 1
  )
  select jsonb_build_object('count', (select count(*) from parked), 'key', (select key::text from last),
                            'seq', (select seq::text from last))
    into result;
  return result;
end
$postcommit$;
