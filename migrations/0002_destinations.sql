-- Destinations: events that wait for one that is away, and what all relays know of it.

-- The shelf: one row per event and destination it still waits for. An outage is not poison (G6): an event that has
-- reached all of its other targets leaves the queue, so that its aggregate goes on to those, and comes back when its
-- destination does. Kept out of the queue so that millions of waiting events never slow a claim.
create table :"schema".outbox_shelf (
  destination text not null,
  seq         bigint not null,
  key         bigint,
  attempts    integer not null,
  rescues     integer not null,
  done        text[],
  replay_id   bigint,
  shelved_at  timestamptz not null default now(),
  primary key (destination, seq)
) with (
  autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000,
  autovacuum_vacuum_insert_scale_factor = 0, autovacuum_vacuum_insert_threshold = 100000,
  autovacuum_analyze_scale_factor = 0, autovacuum_analyze_threshold = 50000,
  autovacuum_vacuum_cost_delay = 0
);
-- A claim asks, for each event, whether an earlier one of its key waits for a destination.
create index outbox_shelf_key_idx on :"schema".outbox_shelf (key, destination, seq) where key is not null;
create index outbox_shelf_seq_idx on :"schema".outbox_shelf (seq);

-- The circuit breaker, shared by all relays.
alter table :"schema".outbox_destinations
  add column state text not null default 'closed' check (state in ('closed', 'open')),
  add column opened_at timestamptz,
  add column error text,
  -- Probes that failed, or were followed by another outage, since the last event that got through.
  add column probes integer not null default 0,
  add column probe_at timestamptz,
  -- When events were last taken from the shelf: what bounds the rate of a drain, whatever the number of relays.
  add column unshelved_at timestamptz;
comment on column :"schema".outbox_destinations.reason is 'Why an operator paused it.';
comment on column :"schema".outbox_destinations.error is 'Why the circuit is open: the broker''s own words.';

create or replace view :"schema".outbox_status as
select e.seq, e.id, e.aggregate_type, e.aggregate_id, e.event_type, e.schema_version, e.payload, e.headers,
       case
         when d.seq is not null then 'FAILED'
         when q.seq is not null and r.token is not null then 'PROCESSING'
         when q.seq is not null or h.attempts is not null then 'PENDING'
         when s.delivered_at is not null then 'SENT'
         else 'PENDING'
       end as status,
       coalesce(q.attempts, h.attempts, d.attempts, s.attempts - 1, 0) as retry_count,
       case when q.available_at < 'infinity' then q.available_at end as next_retry_at,
       e.created_at,
       s.delivered_at as published_at,
       f.error as last_error
  from :"schema".outbox_events e
  left join :"schema".outbox_queue q on q.seq = e.seq
  left join :"schema".outbox_relays r on r.token = q.claimed_by and r.ended_at is null
  left join :"schema".outbox_dead_letters d on d.seq = e.seq
  left join lateral (select x.attempts from :"schema".outbox_shelf x where x.seq = e.seq limit 1) h on true
  left join lateral (
    select x.delivered_at, x.attempts from :"schema".outbox_deliveries x
     where x.seqs @> e.seq order by x.delivered_at desc limit 1
  ) s on true
  left join lateral (
    -- By time first: a dead letter that is retried starts again at attempt 1.
    select x.error from :"schema".outbox_failures x
     where x.seq = e.seq order by x.failed_at desc, x.attempt desc limit 1
  ) f on true;

-- Gives up what is owed to one target that no relay has any more: a destination by name, or a handler as type:name. Takes
-- at most `rows_max` rows of the shelf, of the dead letters and of the queue each; to be called until it is finished.
--
-- An event that owes nothing else has reached all of its other targets, on the shelf or on its way back from there. If there
-- were any it is recorded as delivered to these; if there were none it is a dead letter that is discarded already. One that
-- is owed to nothing but a handler goes to the handlers that relays have for it now. Each event gets a row of its story,
-- under relay 0: that is an operator.
--
-- One at a time, and not beside an unshelving: two that forget both destinations of an event would each leave it to the
-- other. Every statement here has a snapshot of its own, taken under the lock. Dead letters are locked before queue rows,
-- as a retry does it. What a relay holds at the moment is left: it may be shelved for this target once more.
create function :"schema".forget_target(given text, rows_max integer) returns jsonb
language plpgsql set search_path = pg_catalog, pg_temp set row_security = off set lock_timeout = '5s' as $postcommit$
#variable_conflict use_column
declare
  reason constant text := format('An operator forgot %s: the event is not delivered there.', given);
  code constant text := 'POSTCOMMIT_E_TARGET_FORGOTTEN';
  shelf_rows integer;
  queue_rows integer;
  still_queued integer;
  sent integer := 0;
  discarded integer := 0;
  still_waiting integer;
  letters integer;
  in_flight integer;
begin
  if current_setting('transaction_isolation') <> 'read committed' then
    raise exception 'a target can only be forgotten under READ COMMITTED' using
      errcode = 'invalid_transaction_state',
      hint = 'Set default_transaction_isolation to ''read committed'' for this role.';
  end if;
  perform pg_advisory_xact_lock(hashtextextended('postcommit.unshelve', hashtextextended(:'schema', 0)));
  if exists (select from :"schema".outbox_relays r where r.ended_at is null and given = any (r.targets)) then
    return jsonb_build_object('inUse', true);
  end if;

  with chosen as materialized (
    select h.seq, h.key, h.attempts, h.replay_id, coalesce(h.done, '{}') as done,
           not exists (select from :"schema".outbox_shelf o where o.seq = h.seq and o.destination <> given) as alone
      from :"schema".outbox_shelf h where h.destination = given order by h.seq limit rows_max for update
  ), gone as (
    delete from :"schema".outbox_shelf h where h.destination = given and h.seq = any (array(select c.seq from chosen c))
  ), recorded as (
    insert into :"schema".outbox_deliveries (relay, attempts, targets, seqs)
    select 0, c.attempts + 1, c.done, range_agg(int8range(c.seq, c.seq, '[]'))
      from chosen c where c.alone and c.done <> '{}' group by c.attempts, c.done, c.seq / 1000000000000
  ), buried as (
    insert into :"schema".outbox_dead_letters (seq, reason, attempts, replay_id, key, error, discarded_at)
    select c.seq, 'forgotten', c.attempts, c.replay_id, c.key, reason, now() from chosen c where c.alone and c.done = '{}'
    on conflict (seq) do update set dead_at = now(), reason = excluded.reason, attempts = excluded.attempts,
      done = null, owed = null, replay_id = excluded.replay_id, blocking = false, error = excluded.error, discarded_at = now()
  ), history as (
    insert into :"schema".outbox_failures (seq, attempt, relay, target, code, error)
    select c.seq, c.attempts, 0, given, code, reason from chosen c
  )
  select count(*), count(*) filter (where c.alone and c.done <> '{}'), count(*) filter (where c.alone and c.done = '{}')
    into shelf_rows, sent, discarded from chosen c;
  still_waiting := shelf_rows - sent - discarded;

  with chosen as materialized (
    select d.seq, d.attempts, d.blocking from :"schema".outbox_dead_letters d
     where given = any (d.owed) order by d.seq limit rows_max for update
  ), changed as (
    update :"schema".outbox_dead_letters d set owed = nullif(array_remove(d.owed, given), '{}')
     where d.seq = any (array(select c.seq from chosen c))
  ), history as (
    insert into :"schema".outbox_failures (seq, attempt, relay, target, code, error)
    -- One that holds its key is in the queue too, and gets its row there.
    select c.seq, c.attempts, 0, given, code, reason from chosen c where not c.blocking
  )
  select count(*) into letters from chosen;

  with chosen as materialized (
    select q.seq, q.key, q.attempts, q.replay_id, q.blocking, coalesce(q.done, '{}') as done,
           not q.blocking and given not like '%:%' and q.owed <@ array[given] as alone
      from :"schema".outbox_queue q
     where q.owed is not null and given = any (q.owed)
       and (q.claimed_by is null or q.claimed_by not in (select r.token from :"schema".outbox_relays r where r.ended_at is null))
     order by q.seq limit rows_max for update skip locked
  ), gone as (
    delete from :"schema".outbox_queue q where q.seq = any (array(select c.seq from chosen c where c.alone))
  ), changed as (
    update :"schema".outbox_queue q set owed = nullif(array_remove(q.owed, given), '{}')
     where q.seq = any (array(select c.seq from chosen c where not c.alone))
  ), recorded as (
    insert into :"schema".outbox_deliveries (relay, attempts, targets, seqs)
    select 0, c.attempts + 1, c.done, range_agg(int8range(c.seq, c.seq, '[]'))
      from chosen c where c.alone and c.done <> '{}' group by c.attempts, c.done, c.seq / 1000000000000
  ), buried as (
    insert into :"schema".outbox_dead_letters (seq, reason, attempts, replay_id, key, error, discarded_at)
    select c.seq, 'forgotten', c.attempts, c.replay_id, c.key, reason, now() from chosen c where c.alone and c.done = '{}'
    on conflict (seq) do update set dead_at = now(), reason = excluded.reason, attempts = excluded.attempts,
      done = null, owed = null, replay_id = excluded.replay_id, blocking = false, error = excluded.error, discarded_at = now()
  ), history as (
    insert into :"schema".outbox_failures (seq, attempt, relay, target, code, error)
    select c.seq, c.attempts, 0, given, code, reason from chosen c
  )
  select count(*), count(*) filter (where not c.alone and not c.blocking), sent + count(*) filter (where c.alone and c.done <> '{}'),
         discarded + count(*) filter (where c.alone and c.done = '{}')
    into queue_rows, still_queued, sent, discarded from chosen c;

  select count(*) into in_flight from :"schema".outbox_queue q where q.owed is not null and given = any (q.owed);
  if in_flight = 0 and not exists (select from :"schema".outbox_shelf h where h.destination = given) then
    delete from :"schema".outbox_destinations c where c.destination = given;
  end if;
  return jsonb_build_object(
    'inUse', false, 'sent', sent, 'discarded', discarded, 'stillWaiting', still_waiting,
    'queued', still_queued, 'deadLetters', letters, 'inFlight', in_flight,
    'finished', shelf_rows < rows_max and letters < rows_max and queue_rows < rows_max);
end
$postcommit$;

-- Takes undelivered events out of the queue or off the shelf for good. Each becomes a dead letter that is discarded already, so
-- that retention can drop it, with a row of its story under relay 0: that is an operator. What a living relay holds is left
-- alone and counted. Dead letters that hold their key are left alone too: `discard` resolves those.
--
-- The rows are locked by a statement of their own, so that the next one has a later snapshot: a relay that registers and
-- claims in between is seen as living, and an event that a relay was just shelving is found on the shelf. The lock of
-- unshelving keeps an event from moving back meanwhile. What was deferred behind these events is made claimable by the caller,
-- when this has committed (src/outbox/operating/undefer.ts).
create function :"schema".cancel_events(given bigint[], note text) returns jsonb
language plpgsql set search_path = pg_catalog, pg_temp set row_security = off set lock_timeout = '5s' as $postcommit$
#variable_conflict use_column
declare
  reason constant text := format('An operator cancelled the event, as the database role %s%s', session_user,
                                 coalesce(': ' || nullif(note, ''), '.'));
  code constant text := 'POSTCOMMIT_E_EVENT_CANCELLED';
  locked bigint[];
  result jsonb;
begin
  if current_setting('transaction_isolation') <> 'read committed' then
    raise exception 'events can only be cancelled under READ COMMITTED' using
      errcode = 'invalid_transaction_state',
      hint = 'Set default_transaction_isolation to ''read committed'' for this role.';
  end if;
  perform pg_advisory_xact_lock(hashtextextended('postcommit.unshelve', hashtextextended(:'schema', 0)));
  locked := array(select q.seq from :"schema".outbox_queue q where q.seq = any (given) and not q.blocking order by q.seq for update);

  with in_flight as materialized (
    select q.seq from :"schema".outbox_queue q
     where q.seq = any (locked) and q.claimed_by in (select r.token from :"schema".outbox_relays r where r.ended_at is null)
  ), dequeued as (
    delete from :"schema".outbox_queue q where q.seq = any (locked) and q.seq not in (select f.seq from in_flight f)
    returning q.seq, q.key, q.attempts, q.done, q.owed, q.replay_id
  ), unshelved as (
    delete from :"schema".outbox_shelf h where h.seq = any (given)
    returning h.seq, h.key, h.attempts, h.done, h.destination, h.replay_id
  ), cancelled as materialized (
    select c.seq, c.key, c.attempts, c.done, c.owed, c.replay_id from dequeued c
    union all
    select c.seq, min(c.key), min(c.attempts), min(c.done), array_agg(c.destination order by c.destination), min(c.replay_id)
      from unshelved c group by c.seq
  ), buried as (
    insert into :"schema".outbox_dead_letters (seq, reason, attempts, done, owed, replay_id, key, error, discarded_at)
    select c.seq, 'cancelled', c.attempts, c.done, c.owed, c.replay_id, c.key, reason, now() from cancelled c
    on conflict (seq) do update set dead_at = now(), reason = excluded.reason, attempts = excluded.attempts,
      done = excluded.done, owed = excluded.owed, replay_id = excluded.replay_id, blocking = false, error = excluded.error,
      discarded_at = now()
  ), history as (
    insert into :"schema".outbox_failures (seq, attempt, relay, target, code, error)
    select c.seq, c.attempts, 0, null, code, reason from cancelled c
  )
  select jsonb_build_object('count', (select count(*) from cancelled), 'inFlight', (select count(*) from in_flight)) into result;
  return result;
end
$postcommit$;
