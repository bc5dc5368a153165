-- Takes events that wait behind a waiting event of their key out of the ready index until that event is due, so that claims do
-- not walk over a long queue behind one failing aggregate. `seqs` are events that a claim found blocked; their whole keys are
-- deferred, at most `rows_max` events each.
--
-- The first `long_backlog` events of a key become due together with the event they wait for, so no wake-up can get lost. Those
-- further back become due later, by one millisecond per event of the backlog: if the front event fails again, a long backlog
-- need not be deferred again as a whole. undefer_keys() ends that early when the front event succeeds. Behind a blocking dead
-- letter all get 'infinity', until unpark().
--
-- The rows and the event they wait for are locked, so that no event is deferred behind one that is being settled or resolved at
-- this moment: it would wait forever. unpark() relies on that.
--
-- COALESCE around the time keeps the planner from using the index on it: with statistics of a queue in which nothing waits,
-- that index looks better than the one on the key, and every waiting row would be read for each key.
create or replace function :"schema".defer(seqs bigint[], rows_max integer, long_backlog integer) returns void
language plpgsql set search_path = pg_catalog, pg_temp set row_security = off set lock_timeout = '7s'
set enable_seqscan = off set enable_bitmapscan = off set plan_cache_mode = force_generic_plan set jit = off
as $postcommit$
#variable_conflict use_column
begin
  with met as materialized (
    select key, min(seq) as seq from :"schema".outbox_queue where seq = any (seqs) group by key
  ), blocked as materialized (
    select q.seq, q.key from met cross join lateral (
      select q.seq, q.key from :"schema".outbox_queue q
       where q.key = met.key and q.seq >= met.seq and q.claimed_by is null and not q.blocking
         and (q.available_at is null or q.available_at <= now())
       order by q.seq limit rows_max for update skip locked
    ) q
  ), front as materialized (
    select f.key, f.near, f.count, p.available_at
      from (select key, min(seq) as seq, count(*) as count, (array_agg(seq order by seq))[long_backlog] as near
              from blocked group by key) f
      cross join lateral (
        select q.available_at from :"schema".outbox_queue q
         where q.key = f.key and q.seq < f.seq and q.claimed_by is null
           and coalesce(q.available_at, '-infinity') > now()
         order by q.seq desc limit 1 for share skip locked
      ) p
  )
  update :"schema".outbox_queue q
     set available_at = front.available_at
         + case when q.seq > front.near then front.count else 0 end * interval '1 millisecond'
    from front where q.key = front.key and q.seq = any (array(select seq from blocked));
end
$postcommit$;
