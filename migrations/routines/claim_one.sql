-- Claims the only ready event of a named queue, if it is an ordinary one: the claim after a notification, which determines the
-- latency of a quiet outbox. Few parameters, few columns and one statement for the queue, because the server process and the relay
-- have slept: in that state each of them counts (docs/decisions/latency-of-one-event.md).
--
-- Returns one row: the claimed event, or only NULLs. It claims nothing if there are several events, or one that was tried,
-- taken over, replayed or owed before, or that has a predecessor in any state. Nor does it while the queue is paused or anything
-- is on the shelf. It does not look at waiting events, suspects and what ended relays have left. So the caller claims with claim_next() when
-- this claimed nothing, and soon after it did. The rules of claim_many() for order, fencing, queues and the low-water mark apply.
--
-- requires: queue_lock, usable_low_water
create or replace function :"schema".claim_one(
  relay bigint, from_queue text, inline_bytes_max integer, low bigint, low_requeues bigint, low_server text,
  out claimed_seq bigint, out key bigint, out id uuid, out aggregate_type text, out aggregate_id text, out event_type text,
  out schema_version integer, out ordering_key text, out payload text, out headers text, out created_us bigint,
  out attempts_max smallint
)
language plpgsql set search_path = pg_catalog, pg_temp set row_security = off set lock_timeout = '7s'
set enable_seqscan = off set enable_bitmapscan = off set plan_cache_mode = force_generic_plan set jit = off
as $postcommit$
#variable_conflict use_column
declare
  is_open boolean;
  -- All shards. Without a condition on them the planner prefers the primary key, which has the rows of other queues too.
  first_shard bigint := 0;
  next_shard bigint := 1024;
begin
  -- One expression: PL/pgSQL evaluates it without a statement of its own. Before the statement below, whose snapshot then sees
  -- every pause that was completed before the lock was taken.
  is_open := set_config('synchronous_commit', 'off', true) = 'off'
    and pg_try_advisory_xact_lock_shared(:"schema".queue_lock(from_queue));
  if not is_open then
    return;
  end if;

  with ground as materialized (
    select :"schema".usable_low_water(low, low_requeues, low_server) as seq
  ), ready as materialized (
    select q.seq from :"schema".outbox_queue q
     where q.queue = from_queue and q.available_at is null and q.seq >= (select g.seq from ground g) and q.takeovers < 2
       and (coalesce(q.key, hashint8extended(q.seq, 0)) & 1023) >= first_shard
       and (coalesce(q.key, hashint8extended(q.seq, 0)) & 1023) < next_shard
       and q.claimed_by is null
     order by q.seq limit 2
  )
  update :"schema".outbox_queue q set claimed_by = relay
   where q.seq = (
       select o.seq from :"schema".outbox_queue o
        where o.seq = (select min(r.seq) from ready r having count(*) = 1)
          and o.claimed_by is null and o.available_at is null and o.attempts = 0 and o.takeovers = 0
          and o.done is null and o.owed is null and o.replay_id is null
          and exists (select from :"schema".outbox_relays l where l.token = relay and l.ended_at is null)
          and not exists (select from :"schema".outbox_queue_states s where s.queue = from_queue and s.paused_at is not null)
          and not exists (select from :"schema".outbox_shelf)
          and not exists (select from :"schema".outbox_queue p
                           where p.key = o.key and p.seq < o.seq and p.seq >= (select g.seq from ground g))
          for update of o skip locked)
  returning q.seq, q.key into claimed_seq, key;
  if claimed_seq is null then
    return;
  end if;

  -- A separate statement, so that partitions are pruned before they are opened.
  if inline_bytes_max >= 0 then
    select l.id, l.aggregate_type, l.aggregate_id, l.event_type, nullif(l.schema_version, 1), l.ordering_key,
           case when pg_column_size(l.payload) <= inline_bytes_max and pg_column_compression(l.payload) is null then l.payload::text end,
           l.headers::text, (date_part('epoch', l.created_at) * 1000000)::bigint, l.attempts_max
      into id, aggregate_type, aggregate_id, event_type, schema_version, ordering_key, payload, headers, created_us, attempts_max
      from :"schema".outbox_events l where l.seq = claimed_seq;
    -- A compressed payload may be small in the table and too large as text: its size is checked before it is converted.
    if payload is null then
      select case when pg_column_size(p.payload) <= inline_bytes_max then p.payload::text end into payload
        from (select l.payload #> '{}' as payload from :"schema".outbox_events l
               where l.seq = claimed_seq and pg_column_size(l.payload) <= inline_bytes_max offset 0) p;
    end if;
    if octet_length(payload) + octet_length(headers) > inline_bytes_max then
      payload := null;
    end if;
    headers := case when headers = '{}' or octet_length(headers) > inline_bytes_max then null else headers end;
  end if;
end
$postcommit$;
