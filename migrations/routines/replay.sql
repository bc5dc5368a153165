-- Puts delivered events back into the queue. They may be older than the time events are kept, and pruned at this very
-- moment: so under the lock that prune_events takes, with a look at the log that comes after it.
--
-- A replay is a deliberate second send, so it gets an id of its own, which the relay makes part of what brokers
-- deduplicate by. The time is enough: an event can only be replayed again after this replay was delivered.
--
-- requires: key_hash, note_requeues
create or replace function :"schema".replay(seqs bigint[]) returns integer
language plpgsql set search_path = pg_catalog, pg_temp set row_security = off set lock_timeout = '5s' as $postcommit$
declare
  replayed integer;
begin
  perform pg_advisory_xact_lock_shared(hashtextextended('postcommit.prune.' || :'schema', 42));
  with back as (
    insert into :"schema".outbox_queue (seq, key, replay_id)
      select e.seq, :"schema".key_hash(e.aggregate_type, e.aggregate_id, e.ordering_key),
             (extract(epoch from now()) * 1000000)::bigint
        from :"schema".outbox_events e where e.seq = any (seqs) order by e.seq
      -- Another operator may replay the same event: then one of the two inserts does nothing.
      on conflict (seq) do nothing
      returning seq
  )
  select count(*) into replayed from back;
  perform :"schema".note_requeues();
  return replayed;
end
$postcommit$;
