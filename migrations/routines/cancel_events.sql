-- Removes undelivered events from the queue or the shelf for good. Each becomes a discarded dead letter, so that retention can
-- remove it, with a row in outbox_failures under relay 0, which means an operator. Events that a living relay has claimed are
-- skipped and counted. Blocking dead letters are skipped too: `discard` resolves those. Events deferred behind the cancelled
-- ones become claimable in the same transaction. If too many are deferred, only the leading events of the list are processed;
-- `taken` is how many.
--
-- A separate statement locks the rows, so that the next one has a later snapshot: it sees a relay that registered and claimed
-- in between as living, and finds an event that a relay was shelving on the shelf. The unshelve lock keeps events from moving
-- back to the queue meanwhile.
--
-- requires: bound_deferred, undefer
create or replace function :"schema".cancel_events(given bigint[], note text) returns jsonb
language plpgsql set search_path = pg_catalog, pg_temp set row_security = off set lock_timeout = '5s' as $postcommit$
#variable_conflict use_column
declare
  reason constant text := format('An operator cancelled the event, as the database role %s%s', session_user,
                                 coalesce(': ' || nullif(note, ''), '.'));
  code constant text := 'POSTCOMMIT_E_EVENT_CANCELLED';
  taken constant bigint[] := :"schema".bound_deferred(given, 20000);
  locked bigint[];
  keys bigint[];
  seqs bigint[];
  result jsonb;
begin
  if current_setting('transaction_isolation') <> 'read committed' then
    raise exception 'events can only be cancelled under READ COMMITTED' using
      errcode = 'invalid_transaction_state',
      hint = 'Set default_transaction_isolation to ''read committed'' for this role.';
  end if;
  perform pg_advisory_xact_lock(hashtextextended('postcommit.unshelve', hashtextextended(:'schema', 0)));
  locked := array(select q.seq from :"schema".outbox_queue q where q.seq = any (taken) and not q.blocking order by q.seq for update);

  with in_flight as materialized (
    select q.seq from :"schema".outbox_queue q
     where q.seq = any (locked) and q.claimed_by in (select r.token from :"schema".outbox_relays r where r.ended_at is null)
  ), dequeued as (
    delete from :"schema".outbox_queue q where q.seq = any (locked) and q.seq not in (select f.seq from in_flight f)
    returning q.seq, q.key, q.attempts, q.done, q.owed, q.replay_id, nullif(q.queue, 'default') as queue
  ), unshelved as (
    delete from :"schema".outbox_shelf h where h.seq = any (taken)
    returning h.seq, h.key, h.attempts, h.done, h.destination, h.replay_id, h.queue
  ), cancelled as materialized (
    select c.seq, c.key, c.attempts, c.done, c.owed, c.replay_id, c.queue from dequeued c
    union all
    select c.seq, min(c.key), min(c.attempts), min(c.done), array_agg(c.destination order by c.destination), min(c.replay_id),
           min(c.queue)
      from unshelved c group by c.seq
  ), dead as (
    insert into :"schema".outbox_dead_letters (seq, reason, attempts, done, owed, replay_id, key, error, discarded_at, queue)
    select c.seq, 'cancelled', c.attempts, c.done, c.owed, c.replay_id, c.key, reason, now(), c.queue from cancelled c
    on conflict (seq) do update set dead_at = now(), reason = excluded.reason, attempts = excluded.attempts,
      done = excluded.done, owed = excluded.owed, replay_id = excluded.replay_id, blocking = false, error = excluded.error,
      discarded_at = now(), queue = excluded.queue
  ), history as (
    insert into :"schema".outbox_failures (seq, attempt, relay, target, code, error)
    select c.seq, c.attempts, 0, null, code, reason from cancelled c
  )
  select jsonb_build_object('count', (select count(*) from cancelled), 'inFlight', (select count(*) from in_flight),
                            'taken', cardinality(taken)),
         (select array_agg(d.key) from dequeued d), (select array_agg(d.seq) from dequeued d)
    into result, keys, seqs;
  perform :"schema".undefer(keys, seqs);
  return result;
end
$postcommit$;
