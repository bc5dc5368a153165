-- Drops what is owed to a target that no relay has any more: a destination by name, or a handler as type:name. Processes at
-- most `rows_max` rows each of the shelf, the dead letters and the queue; call it until it is finished. Rows of the last two
-- may stay, so each call begins behind `letters_after` and `queue_after`: 0, or what the call before returned, NULL at the end.
-- Starting from the first row each time would be quadratic, and so would counting what is left.
--
-- An event that owes nothing else has reached all of its other targets, whether it is shelved or requeued. If it has reached
-- any, it is recorded as delivered to these; if not, it becomes a discarded dead letter. An event that owes only a handler goes
-- to the handlers that relays have for it now. Each event gets a row in outbox_failures under relay 0, which means an operator.
--
-- Only one call runs at a time, and none during unshelving: two calls that forget both destinations of an event would each
-- leave it to the other. Each statement has its own snapshot, taken under the lock. Dead letters are locked before queue rows,
-- as in requeue(). Events that a relay has claimed are skipped: they may be shelved for this target again.
--
-- Events deferred behind those that leave the queue become claimable in the same transaction. So a call takes no more queue rows
-- than bound_deferred() allows, and is not finished while some are left.
--
-- Queue rows that another transaction has locked are left, as claimed ones are; the call that finishes counts both as in flight.
-- They are skipped before bound_deferred() takes the leading ones: else one locked row would hide all behind it. The rows are read
-- again after that, with a snapshot that sees each relay that had claimed one.
--
-- requires: bound_deferred, require_read_committed, undefer
create or replace function :"schema".forget_target(given text, rows_max integer, letters_after bigint, queue_after bigint)
returns jsonb
language plpgsql set search_path = pg_catalog, pg_temp set row_security = off set lock_timeout = '5s'
set enable_seqscan = off set enable_bitmapscan = off set plan_cache_mode = force_generic_plan set jit = off
as $postcommit$
#variable_conflict use_column
declare
  reason constant text := format('An operator forgot %s: the event is not delivered there.', given);
  code constant text := 'POSTCOMMIT_E_TARGET_FORGOTTEN';
  shelf_rows integer;
  still_queued integer;
  sent integer := 0;
  discarded integer := 0;
  still_waiting integer;
  letters integer;
  letters_reached bigint;
  queue_reached bigint;
  in_flight integer := 0;
  finished boolean;
  candidates bigint[];
  taken bigint[];
  keys bigint[];
  seqs bigint[];
begin
  perform :"schema".require_read_committed('a target can be forgotten');
  perform pg_advisory_xact_lock(hashtextextended('postcommit.unshelve', hashtextextended(:'schema', 0)));
  if exists (select from :"schema".outbox_relays r where r.ended_at is null and given = any (r.targets)) then
    return jsonb_build_object('inUse', true);
  end if;

  with chosen as materialized (
    select h.seq, h.key, h.attempts, h.replay_id, h.queue, coalesce(h.done, '{}') as done,
           not exists (select from :"schema".outbox_shelf o where o.seq = h.seq and o.destination <> given) as alone
      from :"schema".outbox_shelf h where h.destination = given order by h.seq limit rows_max for update
  ), gone as (
    delete from :"schema".outbox_shelf h where h.destination = given and h.seq = any (array(select c.seq from chosen c))
  ), recorded as (
    insert into :"schema".outbox_deliveries (relay, attempts, targets, seqs)
    select 0, c.attempts + 1, c.done, range_agg(int8range(c.seq, c.seq, '[]'))
      from chosen c where c.alone and c.done <> '{}' group by c.attempts, c.done, c.seq / 1000000000000
  ), dead as (
    insert into :"schema".outbox_dead_letters (seq, reason, attempts, replay_id, key, error, discarded_at, queue)
    select c.seq, 'forgotten', c.attempts, c.replay_id, c.key, reason, now(), c.queue from chosen c where c.alone and c.done = '{}'
    on conflict (seq) do update set dead_at = now(), reason = excluded.reason, attempts = excluded.attempts,
      done = null, owed = null, replay_id = excluded.replay_id, blocking = false, error = excluded.error, discarded_at = now(),
      queue = excluded.queue
  ), history as (
    insert into :"schema".outbox_failures (seq, attempt, relay, target, code, error)
    select c.seq, c.attempts, 0, given, code, reason from chosen c
  )
  select count(*), count(*) filter (where c.alone and c.done <> '{}'), count(*) filter (where c.alone and c.done = '{}')
    into shelf_rows, sent, discarded from chosen c;
  still_waiting := shelf_rows - sent - discarded;

  with chosen as materialized (
    select d.seq, d.attempts, d.blocking from :"schema".outbox_dead_letters d
     where d.seq > letters_after and given = any (d.owed) order by d.seq limit rows_max for update
  ), changed as (
    update :"schema".outbox_dead_letters d set owed = nullif(array_remove(d.owed, given), '{}')
     where d.seq = any (array(select c.seq from chosen c))
  ), history as (
    insert into :"schema".outbox_failures (seq, attempt, relay, target, code, error)
    -- A blocking dead letter is also in the queue, and gets its row there.
    select c.seq, c.attempts, 0, given, code, reason from chosen c where not c.blocking
  )
  select count(*), case when count(*) = rows_max then max(c.seq) end into letters, letters_reached from chosen c;

  candidates := array(
    select q.seq from :"schema".outbox_queue q
     where q.owed is not null and q.seq > queue_after and given = any (q.owed)
       and (q.claimed_by is null or q.claimed_by not in (select r.token from :"schema".outbox_relays r where r.ended_at is null))
     order by q.seq limit rows_max for update skip locked);
  taken := :"schema".bound_deferred(candidates, 20000);
  if cardinality(candidates) = rows_max or cardinality(taken) < cardinality(candidates) then
    queue_reached := taken[cardinality(taken)];
  end if;

  with chosen as materialized (
    select q.seq, q.key, q.attempts, q.replay_id, nullif(q.queue, 'default') as queue, q.blocking,
           coalesce(q.done, '{}') as done,
           not q.blocking and given not like '%:%' and q.owed <@ array[given] as alone
      from :"schema".outbox_queue q
     where q.seq = any (taken) and q.owed is not null and given = any (q.owed)
       and (q.claimed_by is null or q.claimed_by not in (select r.token from :"schema".outbox_relays r where r.ended_at is null))
     order by q.seq for update
  ), gone as (
    delete from :"schema".outbox_queue q where q.seq = any (array(select c.seq from chosen c where c.alone))
  ), changed as (
    update :"schema".outbox_queue q set owed = nullif(array_remove(q.owed, given), '{}')
     where q.seq = any (array(select c.seq from chosen c where not c.alone))
  ), recorded as (
    insert into :"schema".outbox_deliveries (relay, attempts, targets, seqs)
    select 0, c.attempts + 1, c.done, range_agg(int8range(c.seq, c.seq, '[]'))
      from chosen c where c.alone and c.done <> '{}' group by c.attempts, c.done, c.seq / 1000000000000
  ), dead as (
    insert into :"schema".outbox_dead_letters (seq, reason, attempts, replay_id, key, error, discarded_at, queue)
    select c.seq, 'forgotten', c.attempts, c.replay_id, c.key, reason, now(), c.queue from chosen c where c.alone and c.done = '{}'
    on conflict (seq) do update set dead_at = now(), reason = excluded.reason, attempts = excluded.attempts,
      done = null, owed = null, replay_id = excluded.replay_id, blocking = false, error = excluded.error, discarded_at = now(),
      queue = excluded.queue
  ), history as (
    insert into :"schema".outbox_failures (seq, attempt, relay, target, code, error)
    select c.seq, c.attempts, 0, given, code, reason from chosen c
  )
  select count(*) filter (where not c.alone and not c.blocking), sent + count(*) filter (where c.alone and c.done <> '{}'),
         discarded + count(*) filter (where c.alone and c.done = '{}'),
         array_agg(c.key) filter (where c.alone), array_agg(c.seq) filter (where c.alone)
    into still_queued, sent, discarded, keys, seqs from chosen c;
  perform :"schema".undefer(keys, seqs);

  finished := shelf_rows < rows_max and letters_reached is null and queue_reached is null;
  if finished then
    select count(*) into in_flight from :"schema".outbox_queue q where q.owed is not null and given = any (q.owed);
    if in_flight = 0 and not exists (select from :"schema".outbox_shelf h where h.destination = given) then
      -- A relay with this target may have started since the first check, while a statement above waited for a lock.
      delete from :"schema".outbox_destinations c where c.destination = given
         and not exists (select from :"schema".outbox_relays r where r.ended_at is null and given = any (r.targets));
    end if;
  end if;
  return jsonb_build_object(
    'inUse', false, 'sent', sent, 'discarded', discarded, 'stillWaiting', still_waiting,
    'queued', still_queued, 'deadLetters', letters, 'inFlight', in_flight, 'finished', finished,
    'lettersReached', letters_reached::text, 'queueReached', queue_reached::text);
end
$postcommit$;
