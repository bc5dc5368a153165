-- Gives the events of a key behind `after` a new time, because what they waited for was released or cancelled: see
-- src/outbox/operating/undefer.ts. Takes at most `rows_max` events, and is to be called again from the last seq on.
--
-- An event that waits because it was emitted with a delay (its time in the queue is still the one in the log) is a wall: it keeps
-- its time, and what is behind it need not be looked at sooner than that. `wall` is the earliest such time that earlier calls
-- have met. An event of the key that is in backoff itself is tried early; that can only be one that was tried before the event in
-- front of it came back into the queue.
--
-- COALESCE around the time keeps the planner from the index on it: with statistics of a queue in which nothing waits, that looks like
-- a better way into a key than the index on the key, and everything that waits would be read for each key.
--
-- Returns how many events it looked at and changed, the last seq, and the wall; times are text, '' for none.
create or replace function :"schema".undefer(key bigint, after bigint, wall timestamptz, rows_max integer) returns jsonb
language plpgsql set search_path = pg_catalog, pg_temp set row_security = off
set enable_seqscan = off set enable_bitmapscan = off set plan_cache_mode = force_generic_plan set jit = off
as $postcommit$
#variable_conflict use_column
declare
  result jsonb;
begin
  with waiting as materialized (
    select q.seq, q.available_at from :"schema".outbox_queue q
     where q.key = undefer.key and q.seq > after
       and q.claimed_by is null and not q.blocking
       and coalesce(q.available_at, 'infinity') > now() and coalesce(q.available_at, 'infinity') < 'infinity'
     order by q.seq limit rows_max for update
  ), judged as materialized (
    select w.seq, w.available_at, e.available_at is not distinct from w.available_at as delayed
      from waiting w left join lateral (
        select l.available_at from :"schema".outbox_events l where l.seq = w.seq limit 1
      ) e on true
  ), timed as materialized (
    select j.*, least(undefer.wall, min(j.available_at) filter (where j.delayed)
                        over (order by j.seq rows between unbounded preceding and 1 preceding)) as due_at
      from judged j
  ), changed as (
    update :"schema".outbox_queue q set available_at = t.due_at from timed t
     where q.seq = t.seq and not t.delayed and (t.due_at is null or t.available_at > t.due_at + interval '1 minute')
    returning q.seq
  )
  select jsonb_build_object(
    'seen', (select count(*) from timed), 'changed', (select count(*) from changed),
    'reached', (select max(seq)::text from timed),
    'wall', coalesce((select least(undefer.wall, min(available_at) filter (where delayed))::text from timed), ''))
    into result;
  return result;
end
$postcommit$;
