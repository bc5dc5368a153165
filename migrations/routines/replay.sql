-- Puts delivered events back into the queue. They may be older than the retention time and about to be pruned, so this takes
-- the lock of prune_events before it reads the log.
--
-- A replay is a deliberate second send, so it gets its own id, which the relay includes in the deduplication id for brokers.
-- The time is unique enough: an event can be replayed again only after this replay was delivered.
--
-- requires: key_hash, note_requeues
create or replace function :"schema".replay(seqs bigint[]) returns integer
language plpgsql set search_path = pg_catalog, pg_temp set row_security = off set lock_timeout = '5s' as $postcommit$
declare
  replayed integer;
begin
  perform pg_advisory_xact_lock_shared(hashtextextended('postcommit.prune.' || :'schema', 42));
  with back as (
    insert into :"schema".outbox_queue (seq, key, replay_id, queue)
      select e.seq, :"schema".key_hash(e.aggregate_type, e.aggregate_id, e.ordering_key),
             (extract(epoch from now()) * 1000000)::bigint, coalesce(e.queue, 'default')
        from :"schema".outbox_events e where e.seq = any (seqs) order by e.seq
      -- If another operator replays the same event, one of the two inserts does nothing.
      on conflict (seq) do nothing
      returning seq
  )
  select count(*) into replayed from back;
  perform :"schema".note_requeues();
  return replayed;
end
$postcommit$;
