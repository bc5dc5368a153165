-- Makes delayed events and events in backoff due now, and in the same transaction the events deferred behind them. If too many
-- are deferred, only the leading events of the list are processed; `taken` is how many. Parked events (infinity) are skipped:
-- they wait for a blocking dead letter. Events that a live relay has claimed are skipped and counted.
--
-- Takes the unshelve lock, like cancel_events and forget_target: only one of these changes the queue at a time, so they cannot
-- lock the same rows in different orders.
--
-- requires: bound_deferred, require_read_committed, undefer
create or replace function :"schema".make_due(given bigint[]) returns jsonb
language plpgsql set search_path = pg_catalog, pg_temp set row_security = off set lock_timeout = '5s'
set enable_seqscan = off set enable_bitmapscan = off set plan_cache_mode = force_generic_plan set jit = off
as $postcommit$
#variable_conflict use_column
declare
  taken constant bigint[] := :"schema".bound_deferred(given, 20000);
  locked bigint[];
  keys bigint[];
  seqs bigint[];
  in_flight integer;
begin
  perform :"schema".require_read_committed('events can be made due');
  perform pg_advisory_xact_lock(hashtextextended('postcommit.unshelve', hashtextextended(:'schema', 0)));
  locked := array(select q.seq from :"schema".outbox_queue q
                   where q.seq = any (taken) and not q.blocking and coalesce(q.available_at, 'infinity') > now()
                     and coalesce(q.available_at, 'infinity') < 'infinity'
                   order by q.seq for update);

  -- A separate snapshot: a relay that registered and claimed before the row was locked is seen as live.
  with alive as materialized (
    select r.token from :"schema".outbox_relays r where r.ended_at is null
  ), changed as (
    update :"schema".outbox_queue q set available_at = null
     where q.seq = any (locked) and (q.claimed_by is null or q.claimed_by not in (select a.token from alive a))
    returning q.seq, q.key
  )
  select coalesce(array_agg(c.key), '{}'), coalesce(array_agg(c.seq), '{}'),
         (select count(*) from :"schema".outbox_queue q where q.seq = any (taken) and q.claimed_by in (select a.token from alive a))
    into keys, seqs, in_flight from changed c;
  perform :"schema".undefer(keys, seqs);
  return jsonb_build_object('count', cardinality(seqs), 'inFlight', in_flight, 'taken', cardinality(taken));
end
$postcommit$;
