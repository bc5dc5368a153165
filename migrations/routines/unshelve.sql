-- Moves events that waited for a destination back into the queue, oldest first, at most `rate_max` per second over all relays
-- and `count_max` per call. Moves none while the destination is down or paused, or while another relay is unshelving. Returns
-- the count.
--
-- One relay at a time, for all destinations: an event may wait for two of them, and is unshelved for both. Lowest seqs first,
-- and in one transaction with the queue, so that a claim sees an event either on the shelf or in the queue, never in both or in
-- neither (G4; see docs/decisions/circuit-and-shelf.md).
--
-- A trial, for a destination that is not known to accept events, takes events of random keys instead: otherwise an event that
-- fails for its own reasons would be the first of every trial, and no other would be tried. Keys are hashes, so a random number
-- finds a random key. Events without a key are found by a random seq. The lowest seq of each key is taken, so that what is
-- unshelved of a key is older than what stays.
create or replace function :"schema".unshelve(target text, rate_max double precision, count_max integer, is_trial boolean)
returns integer
language plpgsql set search_path = pg_catalog, pg_temp set row_security = off set lock_timeout = '7s'
set enable_seqscan = off set enable_bitmapscan = off set plan_cache_mode = force_generic_plan set jit = off
as $postcommit$
#variable_conflict use_column
declare
  -- How many random keys, and how many random seqs, a trial draws.
  draws constant integer := 5;
  allowed integer;
  chosen bigint[];
begin
  -- Not negative, which LIMIT rejects: after the clock was set back nothing is unshelved until `correctFutureTimes` has run.
  select greatest(0, least(count_max, floor(rate_max * least(1, coalesce(
           extract(epoch from clock_timestamp() - c.unshelved_at)::double precision, 0.25)))))::integer
    into allowed
    from :"schema".outbox_destinations c
   where c.destination = target and c.state = 'closed' and c.paused_at is null
     and pg_try_advisory_xact_lock(hashtextextended('postcommit.unshelve', hashtextextended(:'schema', 0)))
     for update;
  if allowed is null or allowed = 0 then
    return 0;
  end if;

  if not is_trial then
    chosen := array(select h.seq from :"schema".outbox_shelf h where h.destination = target order by h.seq limit allowed);
  else
    with bounds as materialized (
      select (select min(h.seq) from :"schema".outbox_shelf h where h.destination = target) as low,
             (select max(h.seq) from :"schema".outbox_shelf h where h.destination = target) as high
    ), draw as materialized (
      select ((random() - 0.5) * 1.8e19)::bigint as key, (b.low + floor(random() * (b.high - b.low + 1)))::bigint as seq
        from bounds b, generate_series(1, draws)
    ), drawn as materialized (
      select k.seq, k.key from draw d cross join lateral (
        select h.seq, h.key from :"schema".outbox_shelf h
         where h.destination = target and h.key >= d.key order by h.key, h.destination, h.seq limit 1) k
      union all
      select k.seq, k.key from draw d cross join lateral (
        select h.seq, h.key from :"schema".outbox_shelf h
         where h.destination = target and h.seq >= d.seq order by h.seq limit 1) k
    ), oldest as materialized (
      select distinct coalesce((select h.seq from :"schema".outbox_shelf h
                                 where h.key = d.key and h.destination = target order by h.seq limit 1), d.seq) as seq
        from drawn d
    )
    select array(select o.seq from oldest o order by random() limit allowed) into chosen;
  end if;
  if cardinality(chosen) = 0 then
    return 0;
  end if;

  with gone as (
    delete from :"schema".outbox_shelf h where h.seq = any (chosen)
    returning h.seq, h.key, h.attempts, h.takeovers, h.done, h.replay_id, h.destination, h.queue
  )
  -- Owed to every destination it waited for: a relay without them must not settle it.
  insert into :"schema".outbox_queue (seq, key, attempts, takeovers, done, replay_id, owed, queue)
  select seq, min(key), min(attempts), min(takeovers), min(done), min(replay_id),
         array_agg(destination order by destination), coalesce(min(queue), 'default')
    from gone group by seq order by seq
  on conflict (seq) do nothing;

  update :"schema".outbox_destinations c
     set unshelved_at = greatest(coalesce(c.unshelved_at, clock_timestamp() - interval '250 milliseconds'),
                                 clock_timestamp() - interval '1 second')
                        + cardinality(chosen) / rate_max * interval '1 second'
   where c.destination = target;
  return cardinality(chosen);
end
$postcommit$;
