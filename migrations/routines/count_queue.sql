-- Returns the figures of one named queue as JSON, for operators: ready events (due now, and not claimed by a live relay), claimed
-- ones, waiting ones, how many of these are in backoff after a failed attempt, and since when the oldest ready one has been due.
-- Reads at most `rows_max` ready and `rows_max` other rows.
--
-- requires: oldest_ready
create or replace function :"schema".count_queue(given text, rows_max integer) returns json
language plpgsql stable set search_path = pg_catalog, pg_temp set row_security = off
set enable_seqscan = off set enable_bitmapscan = off set plan_cache_mode = force_generic_plan set jit = off
as $postcommit$
declare
  -- As in claim_next.
  first_shard bigint := 0;
  next_shard bigint := 1024;
begin
  return (
    with alive as materialized (
      select token from :"schema".outbox_relays where ended_at is null
    ), ready as materialized (
      select q.claimed_by in (select token from alive) as is_claimed from :"schema".outbox_queue q
       where q.queue = given and q.available_at is null
         and (coalesce(q.key, hashint8extended(q.seq, 0)) & 1023) >= first_shard
         and (coalesce(q.key, hashint8extended(q.seq, 0)) & 1023) < next_shard
       order by q.seq limit rows_max
    ), waiting as materialized (
      select q.claimed_by in (select token from alive) as is_claimed, q.available_at, q.attempts from :"schema".outbox_queue q
       where q.queue = given and q.available_at is not null and not q.blocking order by q.available_at limit rows_max
    ), due as materialized (
      select w.available_at from waiting w where w.available_at <= now() and w.is_claimed is not true
    )
    select json_build_object(
      'ready', (select count(*) from ready r where r.is_claimed is not true) + (select count(*) from due),
      'inFlight', (select count(*) from ready r where r.is_claimed) + (select count(*) from waiting w where w.is_claimed),
      'waiting', (select count(*) from waiting w where w.available_at > now() and w.is_claimed is not true),
      'retrying', (select count(*) from waiting w
                    where w.available_at > now() and w.is_claimed is not true and w.attempts > 0),
      'oldestReadyAt', least((select min(d.available_at) from due d),
        (select e.created_at from :"schema".outbox_events e where e.seq = :"schema".oldest_ready(given)))));
end
$postcommit$;
