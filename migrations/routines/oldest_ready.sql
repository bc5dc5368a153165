-- Returns the seq of the oldest ready event of a named queue that no live relay has claimed.
create or replace function :"schema".oldest_ready(given text) returns bigint
language plpgsql stable set search_path = pg_catalog, pg_temp set row_security = off
set enable_seqscan = off set enable_bitmapscan = off set plan_cache_mode = force_generic_plan set jit = off
as $postcommit$
declare
  -- As in claim_next.
  first_shard bigint := 0;
  next_shard bigint := 1024;
begin
  return (
    select q.seq from :"schema".outbox_queue q
     where q.queue = given and q.available_at is null
       and (q.claimed_by is null or q.claimed_by not in (select token from :"schema".outbox_relays where ended_at is null))
       and (coalesce(q.key, hashint8extended(q.seq, 0)) & 1023) >= first_shard
       and (coalesce(q.key, hashint8extended(q.seq, 0)) & 1023) < next_shard
     order by q.seq limit 1);
end
$postcommit$;
