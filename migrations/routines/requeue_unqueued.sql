-- Puts the unqueued events with `first` <= seq < `beyond` into the queue, lowest seq first. Returns their number. Later events of their
-- keys may have been delivered already; the unqueued events are then delivered after them. One that an operator had edited keeps its edit.
--
-- requires: find_unqueued, key_hash, note_requeues
create or replace function :"schema".requeue_unqueued(first bigint, beyond bigint, unqueued_max integer) returns integer
language plpgsql set search_path = pg_catalog, pg_temp set row_security = off set lock_timeout = '5s' as $postcommit$
declare
  requeued integer;
begin
  perform pg_advisory_xact_lock_shared(hashtextextended('postcommit.prune.' || :'schema', 42));
  with back as (
    insert into :"schema".outbox_queue (seq, key, available_at, queue, replay_id)
      select e.seq, :"schema".key_hash(e.aggregate_type, e.aggregate_id, e.ordering_key), e.available_at,
             coalesce(e.queue, 'default'),
             (select (extract(epoch from max(x.edited_at)) * 1000000)::bigint from :"schema".outbox_edits x where x.seq = e.seq)
        from :"schema".outbox_events e
       where e.seq = any (array(select :"schema".find_unqueued(first, beyond, unqueued_max))) order by e.seq
      on conflict (seq) do nothing
      returning seq
  )
  select count(*) into requeued from back;
  perform :"schema".note_requeues();
  return requeued;
end
$postcommit$;
