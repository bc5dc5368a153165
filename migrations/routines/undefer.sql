-- Makes events claimable that `defer` put behind given ones: those that the calling function has
-- made due or taken out of the queue in this transaction, by key and seq. A deferred event has the due time of the event that
-- it waited for, which may be a year away. In the same transaction, so that an operator's process that is interrupted leaves no
-- event deferred behind nothing.
--
-- An event that was emitted with a delay (its time in the queue is still the one in the log) is a wall: it keeps its time, and
-- the events behind it are due no sooner. An event that is in backoff itself is tried early; that can only be one that was tried
-- before the event in front of it came back into the queue.
--
-- Passes are made until one changes nothing. While a pass runs, `defer` may put one more event behind one that the pass has not
-- locked yet. The pass then waits for that transaction, and the next pass, which has a new snapshot, finds the event. `defer` skips
-- the rows that this transaction has locked. To undefer needlessly is harmless: the next claim finds the event blocked and defers
-- it again.
--
-- Many keys in one statement: a statement per key took 350 s for 100,000 keys. The time is not compared in a form that an index on
-- it could answer: with old statistics the planner would read everything that waits, once for each key.
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
           and q.available_at + interval '0' > now() and q.available_at + interval '0' < 'infinity'
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
