-- Removes undelivered events from the queue or the shelf for good. Each becomes a discarded dead letter, so that retention can
-- remove it, with who and why, and with a row in outbox_failures under relay 0, which means an operator. Blocking dead letters
-- are skipped: `discard` resolves those. Events deferred behind the cancelled ones become claimable in the same transaction. If
-- too many are deferred, only the leading events of the list are processed; `taken` is how many.
--
-- An event that a live relay has claimed is cancelled too. Its queue row gets another owner, so whatever the relay writes
-- about it from now on changes nothing (G5): either this function or settle() wins the row, and the other one finds it gone.
-- The row stays, blocking its key, until the relay has stopped the delivery and called end_cancelled(): a later event of the
-- key must not start beside the handler. A NOTIFY tells relays, which find it in outbox_cancellations.
--
-- Returns how many were cancelled (`count`), how many of these a relay had claimed (`running`), and how many of the given ones
-- were delivered before (`delivered`).
--
-- A separate statement locks the rows, so that the next one has a later snapshot: it sees a relay that registered and claimed
-- in between as live, and finds an event that a relay was shelving on the shelf. The unshelve lock keeps events from moving
-- back to the queue meanwhile.
--
-- requires: bound_deferred, require_read_committed, undefer
create or replace function :"schema".cancel_events(given bigint[], note text, actor text) returns jsonb
language plpgsql set search_path = pg_catalog, pg_temp set row_security = off set lock_timeout = '5s' as $postcommit$
#variable_conflict use_column
declare
  reason constant text := format('%s cancelled the event, as the database role %s%s', coalesce(nullif(actor, ''), 'An operator'),
                                 session_user, coalesce(': ' || nullif(note, ''), '.'));
  code constant text := 'POSTCOMMIT_E_EVENT_CANCELLED';
  taken constant bigint[] := :"schema".bound_deferred(given, 20000);
  locked bigint[];
  keys bigint[];
  seqs bigint[];
  result jsonb;
begin
  perform :"schema".require_read_committed('events can be cancelled');
  perform pg_advisory_xact_lock(hashtextextended('postcommit.unshelve', hashtextextended(:'schema', 0)));
  locked := array(select q.seq from :"schema".outbox_queue q where q.seq = any (taken) and not q.blocking order by q.seq for update);

  with running as materialized (
    select q.seq, q.key, q.attempts, q.done, q.owed, q.replay_id, q.claimed_by, nullif(q.queue, 'default') as queue
      from :"schema".outbox_queue q
     where q.seq = any (locked) and q.claimed_by in (select r.token from :"schema".outbox_relays r where r.ended_at is null)
  ), fenced as (
    update :"schema".outbox_queue q set claimed_by = 0, blocking = true, available_at = 'infinity', done = null, owed = null
     where q.seq = any (array(select r.seq from running r))
  ), told as (
    insert into :"schema".outbox_cancellations (seq, relay, reason) select r.seq, r.claimed_by, reason from running r
    on conflict (seq) do update set relay = excluded.relay, reason = excluded.reason, cancelled_at = now()
  ), dequeued as (
    delete from :"schema".outbox_queue q where q.seq = any (locked) and q.seq not in (select r.seq from running r)
    returning q.seq, q.key, q.attempts, q.done, q.owed, q.replay_id, nullif(q.queue, 'default') as queue
  ), unshelved as (
    delete from :"schema".outbox_shelf h where h.seq = any (taken)
    returning h.seq, h.key, h.attempts, h.done, h.destination, h.replay_id, h.queue
  ), cancelled as materialized (
    select c.seq, c.key, c.attempts, c.done, c.owed, c.replay_id, c.queue from dequeued c
    union all
    select c.seq, c.key, c.attempts, c.done, c.owed, c.replay_id, c.queue from running c
    union all
    select c.seq, min(c.key), min(c.attempts), min(c.done), array_agg(c.destination order by c.destination), min(c.replay_id),
           min(c.queue)
      from unshelved c group by c.seq
  ), dead as (
    insert into :"schema".outbox_dead_letters (seq, reason, attempts, done, owed, replay_id, key, error, discarded_at,
                                               cancelled_by, cancel_note, queue)
    select c.seq, 'cancelled', c.attempts, c.done, c.owed, c.replay_id, c.key, reason, now(),
           coalesce(nullif(actor, ''), session_user), nullif(note, ''), c.queue from cancelled c
    on conflict (seq) do update set dead_at = now(), reason = excluded.reason, attempts = excluded.attempts,
      done = excluded.done, owed = excluded.owed, replay_id = excluded.replay_id, blocking = false, error = excluded.error,
      discarded_at = now(), cancelled_by = excluded.cancelled_by, cancel_note = excluded.cancel_note,
      queue = excluded.queue
  ), history as (
    insert into :"schema".outbox_failures (seq, attempt, relay, target, code, error)
    select c.seq, c.attempts, 0, null, code, reason from cancelled c
  ), missed as materialized (
    select t.seq from unnest(taken) as t(seq) where t.seq not in (select c.seq from cancelled c)
  )
  select jsonb_build_object(
           'count', (select count(*) from cancelled), 'running', (select count(*) from running),
           'delivered', (
             select count(*) from missed m
              where not exists (select from :"schema".outbox_dead_letters d where d.seq = m.seq)
                and exists (select from :"schema".outbox_deliveries x
                             where x.seqs @> m.seq
                               and lower(x.seqs) >= m.seq / 1000000000000 * 1000000000000
                               and lower(x.seqs) < (m.seq / 1000000000000 + 1) * 1000000000000)),
           'taken', cardinality(taken)),
         (select array_agg(d.key) from dequeued d), (select array_agg(d.seq) from dequeued d)
    into result, keys, seqs;
  perform :"schema".undefer(keys, seqs);
  if (result ->> 'running')::bigint > 0 then
    -- The channel of the doorbell: see doorbellChannel in src/database/identifier.ts. A name of a queue has no colon.
    perform pg_notify('postcommit_' || left(encode(sha256(convert_to(:'schema', 'UTF8')), 'hex'), 16), 'cancelled:');
  end if;
  return result;
end
$postcommit$;
