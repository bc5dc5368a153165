-- Claims a single event of a named queue, and examines everything else that may have to be done there: claim_one() does not.
-- Usually there is at most one event, without a predecessor. claim_many() is made for batches: setting up its plan alone takes
-- 0.4 ms.
--
-- Returns one row: how many events could be claimed (2 means two or more), whether the only one fits, when the next waiting
-- event is due, and the claimed event. It claims nothing, and the caller uses claim_many() instead, if there are several events
-- or one that needs more: a waiting event that is due, an ended relay to take over from, a predecessor, a suspect, anything on
-- the shelf. All of this is read in one statement's snapshot; the rules of claim_many() for order, fencing, queues and the
-- low-water mark apply. An event that fits and is not claimed was locked: another relay is claiming it.
--
-- requires: queue_lock, usable_low_water
create or replace function :"schema".claim_next(
  relay bigint, except_keys bigint[], inline_bytes_max integer, known_seqs bigint[], low bigint, low_requeues bigint,
  low_server text, targets text[], from_queue text,
  out seen bigint, out fits boolean, out due_in_ms double precision,
  out claimed_seq bigint, out key bigint, out attempts integer, out done text[], out takeovers integer, out owed text[],
  out replay_id bigint,
  out id uuid, out aggregate_type text, out aggregate_id text, out event_type text, out schema_version integer,
  out ordering_key text, out payload text, out headers text, out created_us bigint,
  out attempts_max smallint
)
language plpgsql set search_path = pg_catalog, pg_temp set row_security = off set lock_timeout = '7s'
set enable_seqscan = off set enable_bitmapscan = off set plan_cache_mode = force_generic_plan set jit = off
as $postcommit$
#variable_conflict use_column
declare
  registered boolean;
  is_open boolean;
  -- All shards. Without a condition on them the planner prefers the primary key, which has the rows of other queues too.
  first_shard bigint := 0;
  next_shard bigint := 1024;
begin
  -- One expression: PL/pgSQL evaluates it without a statement of its own. Before the statement below, whose snapshot then sees
  -- every pause that was completed before the lock was taken.
  is_open := set_config('synchronous_commit', 'off', true) = 'off'
    and pg_try_advisory_xact_lock_shared(:"schema".queue_lock(from_queue));

  with live as materialized (
    select token from :"schema".outbox_relays where ended_at is null
  ), ground as materialized (
    select :"schema".usable_low_water(low, low_requeues, low_server) as seq
  ), ready as materialized (
    select q.seq, q.key, q.claimed_by from :"schema".outbox_queue q
     where q.queue = from_queue and q.available_at is null and q.seq >= (select seq from ground) and q.takeovers < 2
       and (coalesce(q.key, hashint8extended(q.seq, 0)) & 1023) >= first_shard
       and (coalesce(q.key, hashint8extended(q.seq, 0)) & 1023) < next_shard
       and (q.claimed_by is null or q.claimed_by not in (select token from live)
            or (q.claimed_by = relay and q.seq <> all (known_seqs)))
       and (q.key is null or q.key <> all (except_keys))
       and (q.owed is null or q.owed && targets)
     order by q.seq limit 2
  ), first as materialized (
    select count(*) as seen, min(r.seq) as seq, min(r.key) as key, count(r.claimed_by) as claimed_count from ready r
  ), waiting as materialized (
    select q.available_at from :"schema".outbox_queue q
     where q.queue = from_queue and q.available_at < 'infinity' and (q.owed is null or q.owed && targets)
     order by q.available_at limit 1
  ), state as materialized (
    select exists (select from live l where l.token = relay) as registered,
           is_open and not exists (select from :"schema".outbox_queue_states s
                                    where s.queue = from_queue and s.paused_at is not null) as open,
           exists (select from :"schema".outbox_queue q
                    where q.queue = from_queue and q.takeovers > 1 and (q.available_at is null or q.available_at <= now())
                      and (q.claimed_by is null or q.claimed_by not in (select token from live))
                      and (q.owed is null or q.owed && targets)) as suspects
  ), fit as materialized (
    select f.seq from first f, state s
     where f.seen = 1 and f.claimed_count = 0 and s.registered and s.open and not s.suspects
       and not exists (select from waiting w where w.available_at <= now())
       and not exists (select from :"schema".outbox_shelf)
       and coalesce((select p.claimed_by is not distinct from relay and coalesce(p.seq = any (known_seqs), true)
                       from :"schema".outbox_queue p
                      where p.key = f.key and p.seq < f.seq and p.seq >= (select seq from ground)
                      order by p.seq desc limit 1), true)
  ), one as materialized (
    select q.seq from :"schema".outbox_queue q
     where q.seq = (select t.seq from fit t) and q.claimed_by is null and q.available_at is null for update skip locked
  ), claimed as (
    update :"schema".outbox_queue q set claimed_by = relay where q.seq = (select o.seq from one o) and q.claimed_by is null
    returning q.seq, q.key, q.attempts, q.done, q.takeovers, q.owed, q.replay_id
  )
  select case when s.open then f.seen else 0 end, exists (select from fit),
         case when not s.open then null
              when s.suspects then 0
              when w.available_at > now() then date_part('epoch', w.available_at - now()) * 1000
              when w.available_at is not null then 0 end,
         c.seq, c.key, c.attempts, c.done, c.takeovers, c.owed, c.replay_id, s.registered
    into seen, fits, due_in_ms, claimed_seq, key, attempts, done, takeovers, owed, replay_id, registered
    from state s cross join first f left join waiting w on true left join claimed c on true;
  if not registered then
    raise exception 'relay % has ended, or was never registered here', relay using errcode = 'PC001';
  end if;

  -- A separate statement, so that partitions are pruned before they are opened.
  if claimed_seq is not null and inline_bytes_max >= 0 then
    select l.id, l.aggregate_type, l.aggregate_id, l.event_type, nullif(l.schema_version, 1), l.ordering_key,
           case when octet_length(t.payload) + octet_length(t.headers) <= inline_bytes_max then t.payload end,
           case when octet_length(t.headers) <= inline_bytes_max then nullif(t.headers, '{}') end, (date_part('epoch', l.created_at) * 1000000)::bigint,
           l.attempts_max
      into id, aggregate_type, aggregate_id, event_type, schema_version, ordering_key, payload, headers, created_us,
           attempts_max
      from :"schema".outbox_events l
      left join lateral (
        select case when pg_column_size(p.payload) <= inline_bytes_max then p.payload::text end as payload,
               l.headers::text as headers
          from (select case when pg_column_size(l.payload) > inline_bytes_max then null
                            when pg_column_compression(l.payload) is null then l.payload else l.payload #> '{}' end as payload
                offset 0) p
        offset 0
      ) t on true
     where l.seq = claimed_seq;
    -- Every event with an edit has a replay_id. The relay loads the edited payload.
    if replay_id is not null and exists (select from :"schema".outbox_edits x where x.seq = claimed_seq) then
      payload := null;
    end if;
  end if;
end
$postcommit$;
