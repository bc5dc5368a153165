-- Makes events claimable that `defer` put behind the given ones, which the calling function has made due or removed from the
-- queue in this transaction, by key and seq. A deferred event has the due time of the event that it waited for, which may be a
-- year ahead. In the same transaction, so that an interrupted process leaves no event deferred behind nothing.
--
-- An event emitted with a delay (its time in the queue still equals the one in the log) is a wall: it keeps its time, and the
-- events behind it are not due earlier. An event that is itself in backoff is tried early; that can only be one that was tried
-- before the event in front of it was requeued.
--
-- Repeats until a pass changes nothing. During a pass, `defer` may put another event behind one that the pass has not locked
-- yet. The pass then waits for that transaction, and the next pass, with a new snapshot, finds the event. `defer` skips the
-- rows that this transaction has locked. An unnecessary undefer is harmless: the next claim finds the event blocked and defers
-- it again.
--
-- One statement for many keys: a statement per key took 350 s for 100,000 keys. COALESCE keeps the planner from using the index
-- on the time: with statistics of a queue in which nothing waits it would read every waiting row, once for each key.
create or replace function :"schema".undefer(keys bigint[], seqs bigint[]) returns void
language plpgsql set search_path = pg_catalog, pg_temp set row_security = off
set enable_seqscan = off set enable_bitmapscan = off set plan_cache_mode = force_generic_plan set jit = off
as $postcommit$
#variable_conflict use_column
declare
  passes_max constant integer := 20;
  changed integer;
begin
  for pass in 1 .. passes_max loop
    with front as materialized (
      select f.key, min(f.seq) as seq from unnest(keys, seqs) as f (key, seq) where f.key is not null group by f.key order by f.key
    ), waiting as materialized (
      select q.key, q.seq, q.available_at from front cross join lateral (
        select q.key, q.seq, q.available_at from :"schema".outbox_queue q
         where q.key = front.key and q.seq > front.seq and q.claimed_by is null and not q.blocking
           and coalesce(q.available_at, 'infinity') > now() and coalesce(q.available_at, 'infinity') < 'infinity'
         order by q.seq for update
      ) q
    ), judged as materialized (
      select w.key, w.seq, w.available_at, e.available_at is not distinct from w.available_at as delayed
        from waiting w left join lateral (
          select l.available_at from :"schema".outbox_events l where l.seq = w.seq limit 1
        ) e on true
    ), timed as materialized (
      select j.seq, j.available_at, j.delayed, min(j.available_at) filter (where j.delayed)
               over (partition by j.key order by j.seq rows between unbounded preceding and 1 preceding) as wall
        from judged j
    )
    update :"schema".outbox_queue q set available_at = t.wall from timed t
     where q.seq = t.seq and not t.delayed and (t.wall is null or t.available_at > t.wall + interval '1 minute');
    get diagnostics changed = row_count;
    exit when changed = 0;
  end loop;
end
$postcommit$;
