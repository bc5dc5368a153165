-- Claims events of one named queue for one relay: ready ones in order of seq, and waiting ones that are due. The payload of the first row is a
-- JSON summary of the claim and of the queue; the other rows are from the log.
--
-- A function, because PL/pgSQL caches plans per session without named prepared statements, which transaction poolers do not
-- support. Planning a claim took 0.9 ms, as long as claiming one event. A plan is made once, so it must be good for any table
-- size: a queue that was empty when the plan was made may have a million rows later. Hence the settings: generic plans, always
-- by index. No JIT, which would compile for a tenth of a second what runs for milliseconds.
--
-- Invariants that are easy to break in an edit:
-- - Order (G4). An event is claimed only if its immediate predecessor of the same key is settled, is claimed in this statement,
--   or is already claimed by this relay (the dispatcher keeps those in order). `wall` is the first event of a key that fails
--   this; it and all events behind it stay. Checking every predecessor instead is quadratic in the length of a hot key.
-- - Fencing (G5). `claimed_by` becomes this relay's token. The token of a relay that has ended counts as free: that is the
--   takeover. FOR UPDATE reads the latest version of a row, but `alive` is read in the statement's snapshot, where a relay that
--   has registered and claimed since then would look ended. So `candidate` drops claimed rows that changed after the snapshot.
-- - Lost results. A claim whose result was lost may have taken effect, even much later (a statement that waits for a lock does
--   not notice that its client is gone). From then on the relay passes the seqs it knows as `known_seqs`: a row under its own
--   token that is not among them is a lost claim, free to be claimed again, and does not count as a claimed predecessor.
-- - SKIP LOCKED lets relays claim concurrently; MATERIALIZED keeps the planner from locking more rows than LIMIT.
-- - The floor (`above`) is where the last claim ended. It only saves work and must never decide what is delivered, so the lane
--   regularly claims from floor 0.
-- - The low-water mark (`low`): no event below it is in the queue, or can be unless an event was requeued since (see
--   src/relay/lane/low-water.ts). While a session holds an old snapshot, the index entries of all rows settled since then stay.
--   Every predecessor lookup would walk over those of its key, and every claim from the start over all of them (200,000 events
--   of 1,000 aggregates: 26.7 us an event instead of 15.4, and growing). With `sample`, the claim also returns the input for
--   the next mark.
-- - No index covers `claimed_by`, so a claim is a HOT update.
-- - A relay that has ended or is not registered here (a failover may have lost its registration) gets an error.
-- - Suspects. An event that ends its process (out of memory, a segmentation fault) would be redelivered forever, and everything
--   claimed with it would wait. So an event that two relays owned when they ended is a suspect: it is claimed only if it has no
--   predecessor, and a relay owns few suspects at a time (`suspect_max`), those with the fewest takeovers first. After four
--   takeovers it is a prime suspect: a relay delivers it alone, with no other delivery in flight, and counts that trial
--   beforehand (begin_trial.sql). From then on only trials count, not claims (src/relay/event/suspicion.ts).
-- - A due event that must wait for another event of its key becomes ready (`passed`). Blocked ready events are cheap, because
--   the lane walks past them. Due events are always read from the first, so enough blocked ones would hide all others,
--   including the one they wait for.
-- - A shelved event does not block its key. The statement that shelves it also removes it from the queue, so the claim of the
--   next event of that key sees it on the shelf, and that event is delivered only to other destinations. That is why the
--   claiming statement reads the shelf, not the one that reads the log.
-- - An event that owes targets (`owed`) is left to relays that have one of them: a relay of another version would settle it
--   without. It remains a predecessor of its key. `targets` also contains the destinations that no live relay has, so that
--   any relay can put such an event back onto the shelf.
-- - A second statement reads the log: its snapshot is later, so it sees every claimed event, and its bounds are known when it
--   starts, so it touches only the partitions between them.
-- - `= any (array)` instead of joins: PostgreSQL 17 and later scan a dense array in one pass (13 pages instead of 1,500 for 500
--   events), and no wrong estimate can make it quadratic.
-- - In a quiet outbox most claims find nothing, or a single event without a predecessor, and they determine its latency. They
--   are left to claim_next(): setting up the plan of this statement takes 0.4 ms.
-- - Queues. Only rows of `from_queue` are candidates, and both indexes begin with the queue, so a claim costs the same beside
--   any number of events of another queue. Predecessors count whatever their queue: order per key holds across queues.
-- - A paused queue. pause_queue() takes the lock `queue_lock` exclusively, so when it returns no claim that began before is
--   still running, and every later one sees the pause: it is read in a statement after the one that took the lock. The lock is
--   only tried: a claim during a pause_queue() finds nothing.
-- - Locks. A claim gives up a lock after 7 s, before the relay gives up the connection (15 s): a statement whose client is gone waits
--   on, and while the queue is locked each further try would add another server process. `settle` and the others do the same.
-- - A claim need not survive a server crash: the relay claims the events again (src/relay/lane/claim-keeper.ts), or they are free.
--   So its commit does not wait for the disk.
--
-- An event returns at most as much text as the inline limit. A payload that exceeds it, alone or together with the headers, is
-- left out, as are headers that exceed it alone. The relay loads them one by one before delivery
-- (src/outbox/delivering/load-payload.ts), so that a batch of large events cannot exceed its memory. The stored size is checked
-- first, at no cost. Stored values are compressed, perhaps a hundredfold, so `#> '{}'` decompresses the value and its size is
-- checked again. OFFSET 0 keeps the text from being computed twice. With a negative limit nothing is read from the log: for a
-- relay that reads events one by one, because one of them cannot be read.
--
-- A number in jsonb takes about 12 bytes, and up to 131 KB of text: 1e131071. Payloads of such numbers within the inline limit
-- have up to 180 MB of text each. A batch of them exceeded the relay's query timeout, and delivery stopped. So a claim stops
-- converting payloads after half a second and leaves out the rest of the batch; plain_payload() protects the statement that
-- loads those. Headers need no such limit: a CHECK bounds their text.
--
-- Relays that share a backlog would each walk through all of it, and can claim nothing of a key whose events another relay has
-- claimed: four relays on two cores used 2.5 times the processor time of one. So a claim can be limited to the relay's own
-- shards: keys are divided into 1,024 shards by hash, and each live relay has a contiguous range of them, by the rank of its
-- token. Entries of other shards are skipped in the index. Shards decide which relay tries first, never which may deliver:
-- relays may briefly disagree about which are alive. Once a second, and when its own shards are empty, a relay claims from all
-- shards (src/relay/lane/queue-walk.ts), so a free event does not wait for a relay that is stuck or has just died.
--
-- requires: queue_lock, sample_queue, usable_low_water
create or replace function :"schema".claim_many(
  relay bigint, above bigint, ready_max integer, due_max integer, except_keys bigint[], inline_bytes_max integer,
  known_seqs bigint[], low bigint, low_requeues bigint, low_server text, sample boolean, own_shards boolean,
  suspect_max integer, targets text[], from_queue text
) returns table (
  seq bigint, id uuid, aggregate_type text, aggregate_id text, event_type text, schema_version integer,
  ordering_key text, payload text, headers text, created_us bigint, attempts_max smallint
)
language plpgsql set search_path = pg_catalog, pg_temp set row_security = off set lock_timeout = '7s'
set enable_seqscan = off set enable_bitmapscan = off set plan_cache_mode = force_generic_plan set jit = off
set work_mem = '32MB'
as $postcommit$
#variable_conflict use_column
declare
  taken_seqs bigint[];
  scan text;
  relays bigint := 1;
  first_shard bigint := 0;
  next_shard bigint := 1024;
  text_until timestamptz;
  is_open boolean;
  registered boolean;
begin
  perform set_config('synchronous_commit', 'off', true);
  is_open := pg_try_advisory_xact_lock_shared(:"schema".queue_lock(from_queue));

  if own_shards then
    select count(*), 1024 * count(*) filter (where r.token < relay) / greatest(count(*), 1),
           1024 * (count(*) filter (where r.token < relay) + 1) / greatest(count(*), 1)
      into relays, first_shard, next_shard
      from :"schema".outbox_relays r where r.ended_at is null;
  end if;

  select exists (select from :"schema".outbox_relays r where r.token = relay and r.ended_at is null),
         is_open and not exists (select from :"schema".outbox_queue_states s where s.queue = from_queue and s.paused_at is not null)
    into registered, is_open;
  if not registered then
    raise exception 'relay % has ended, or was never registered here', relay using errcode = 'PC001';
  end if;
  if not is_open then
    ready_max := 0;
    due_max := 0;
    suspect_max := 0;
  end if;

  with alive as materialized (
    select token from :"schema".outbox_relays where ended_at is null
  ), ground as materialized (
    select :"schema".usable_low_water(low, low_requeues, low_server) as seq
  ), ready as materialized (
    select q.seq, q.key, q.claimed_by, q.takeovers from :"schema".outbox_queue q
     where q.queue = from_queue and q.available_at is null and q.seq > above and q.seq >= (select seq from ground) and q.takeovers < 2
       and (q.claimed_by is null or q.claimed_by not in (select token from alive)
            or (q.claimed_by = relay and q.seq <> all (known_seqs)))
       and (q.key is null or q.key <> all (except_keys))
       and (q.owed is null or q.owed && targets)
       and (coalesce(q.key, hashint8extended(q.seq, 0)) & 1023) >= first_shard
       and (coalesce(q.key, hashint8extended(q.seq, 0)) & 1023) < next_shard
     order by q.seq limit ready_max for update skip locked
  ), due as materialized (
    select q.seq, q.key, q.claimed_by, q.takeovers from :"schema".outbox_queue q
     where q.queue = from_queue and q.available_at <= now() and q.takeovers < 2
       and (q.claimed_by is null or q.claimed_by not in (select token from alive)
            or (q.claimed_by = relay and q.seq <> all (known_seqs)))
       and (q.key is null or q.key <> all (except_keys))
       and (q.owed is null or q.owed && targets)
     order by q.available_at, q.seq limit due_max for update skip locked
  ), suspect as materialized (
    select q.seq, q.key, q.claimed_by, q.takeovers from :"schema".outbox_queue q
     where q.queue = from_queue and q.takeovers > 1 and (q.available_at is null or q.available_at <= now())
       and (q.claimed_by is null or q.claimed_by not in (select token from alive)
            or (q.claimed_by = relay and q.seq <> all (known_seqs)))
       and (q.key is null or q.key <> all (except_keys))
       and (q.owed is null or q.owed && targets)
       and not exists (select from :"schema".outbox_queue p
                        where p.key = q.key and p.seq < q.seq and p.seq >= (select seq from ground))
     order by q.takeovers, q.seq limit suspect_max for update skip locked
  ), candidate as materialized (
    select c.seq, c.key, c.claimed_by, c.due
      from (select *, false as due from ready union all select *, true from due
            union all select *, false from suspect) c
     where (c.claimed_by is null or c.claimed_by = (select q.claimed_by from :"schema".outbox_queue q where q.seq = c.seq))
       and (c.takeovers <> 1 or c.claimed_by is null or c.claimed_by = relay)
  ), marked as (
    update :"schema".outbox_queue q set claimed_by = null, takeovers = 2
     where q.seq = any (array(
       select c.seq from (table ready union all table due) c
        where c.takeovers = 1 and c.claimed_by <> relay
          and c.claimed_by = (select q.claimed_by from :"schema".outbox_queue q where q.seq = c.seq)))
    returning q.seq
  ), judged as materialized (
    select c.seq, c.key, c.claimed_by, c.due, p.seq as pred, p.claimed_by as pred_claimed_by, p.available_at as pred_available_at
      from candidate c left join lateral (
        select q.seq, q.claimed_by, q.available_at from :"schema".outbox_queue q
         where q.key = c.key and q.seq < c.seq and q.seq >= (select seq from ground) order by q.seq desc limit 1
      ) p on true
  ), wall as materialized (
    select key, min(seq) as seq, coalesce(bool_or(pred_claimed_by is null and pred_available_at > now()), false) as pred_waits
      from judged
     where pred is not null and pred not in (select seq from candidate)
       and (pred_claimed_by is distinct from relay or pred <> all (known_seqs))
     group by key
  ), taken as materialized (
    select array_agg(j.seq order by j.seq) as seqs, array_agg(j.key order by j.seq) as keys,
           array_agg(j.seq::text) filter (where j.claimed_by <> relay) as taken_over
      from judged j where not exists (select from wall w where w.key = j.key and w.seq <= j.seq)
  ), claimed as (
    update :"schema".outbox_queue q
       set claimed_by = relay, takeovers = q.takeovers + coalesce(q.claimed_by <> relay and q.takeovers < 4, false)::integer
     where q.seq = any ((select seqs from taken)::bigint[])
    returning q.seq, q.key, q.attempts, q.done, q.takeovers, q.owed, q.replay_id
  ), passed as (
    update :"schema".outbox_queue q set claimed_by = null, available_at = null
     where q.seq = any (array(select j.seq from judged j join wall w on w.key = j.key
       where j.seq >= w.seq and (j.claimed_by is not null or (j.due and not w.pred_waits))))
  ), shelved as (
    select json_object_agg(c.seq, s.destinations) as destinations
      from claimed c cross join lateral (
        select array_agg(d.destination) as destinations from :"schema".outbox_destinations d
         -- A scalar subquery: EXISTS becomes a join, which reads all rows of a key, and one may have a hundred thousand.
         where (select true from :"schema".outbox_shelf h
                 where h.key = c.key and h.destination = d.destination and h.seq < c.seq limit 1)
      ) s
     where (select exists (select from :"schema".outbox_shelf)) and s.destinations is not null
  )
  select t.seqs, json_build_object(
           'seqs', array_to_string(t.seqs, ','),
           'keys', array_to_string(t.keys, ',', ''),
           'takenOver', t.taken_over,
           'begun', (select json_object_agg(c.seq, json_build_object(
                              'attempts', c.attempts, 'done', c.done, 'takeovers', c.takeovers, 'owed', c.owed,
                              'replayId', c.replay_id::text))
                       from claimed c
                      where c.attempts > 0 or c.done is not null or c.takeovers > 0 or c.owed is not null
                         or c.replay_id is not null),
           'suspects', (select nullif(count(*), 0) from marked),
           'shelved', (select destinations from shelved),
           'examined', r.examined, 'relays', relays,
           'reached', r.reached::text,
           'dueExamined', (select count(*) from due),
           'blocked', (select array_agg(j.seq::text) from judged j join wall w on w.key = j.key
                        where w.pred_waits and j.seq >= w.seq),
           'dueInMs', (select date_part('epoch', q.available_at - now()) * 1000 from :"schema".outbox_queue q
                        where q.queue = from_queue and q.available_at > now() and q.available_at < 'infinity'
                        order by q.available_at limit 1),
           'sample', :"schema".sample_queue(low, low_requeues, low_server, sample))
    into taken_seqs, scan
    from taken t, (select count(*) as examined, max(seq) as reached from ready) r;

  seq := null;
  payload := scan;
  return next;
  if taken_seqs is null or inline_bytes_max < 0 then
    return;
  end if;
  text_until := clock_timestamp() + interval '500 ms';
  return query
    select l.seq, l.id, l.aggregate_type, l.aggregate_id, l.event_type, nullif(l.schema_version, 1), l.ordering_key,
           case when octet_length(t.payload) + octet_length(t.headers) <= inline_bytes_max then t.payload end,
           case when octet_length(t.headers) <= inline_bytes_max then nullif(t.headers, '{}') end, (date_part('epoch', l.created_at) * 1000000)::bigint,
           l.attempts_max
      from :"schema".outbox_events l
      left join lateral (
        select case when pg_column_size(p.payload) <= inline_bytes_max and clock_timestamp() < text_until then p.payload::text end as payload,
               l.headers::text as headers
          from (select case when pg_column_size(l.payload) > inline_bytes_max
                              or (select exists (select from :"schema".outbox_edits))
                                 and exists (select from :"schema".outbox_edits x where x.seq = l.seq) then null
                            when pg_column_compression(l.payload) is null then l.payload else l.payload #> '{}' end as payload
                offset 0) p
        offset 0
      ) t on true
     where l.seq = any (taken_seqs) and l.seq >= taken_seqs[1] and l.seq <= taken_seqs[cardinality(taken_seqs)]
     order by l.seq;
end
$postcommit$;
