-- Counts that events were put back into the queue: from the shelf, from the dead letters, by a replay, or because they were unqueued. A relay
-- may skip seqs below its low-water mark only while this number is the one it read when it took the mark. A sequence, because
-- sessions increment it without waiting for each other, and counting too early is harmless (src/relay/lane/low-water.ts).
--
-- SECURITY DEFINER: a relay may not write to the sequence.
create or replace function :"schema".note_requeues() returns void
language plpgsql security definer set search_path = pg_catalog, pg_temp as $postcommit$
begin
  perform nextval(:'schema.outbox_requeues'::regclass);
end
$postcommit$;
revoke execute on function :"schema".note_requeues() from public;
