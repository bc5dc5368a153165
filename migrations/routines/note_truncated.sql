-- Trigger function of outbox_events and outbox_queue: TRUNCATE ... RESTART IDENTITY sets the sequence of the log back, which makes
-- every low-water mark wrong.
--
-- requires: note_requeues
create or replace function :"schema".note_truncated() returns trigger
language plpgsql security definer set search_path = pg_catalog, pg_temp as $postcommit$
begin
  perform :"schema".note_requeues();
  return null;
end
$postcommit$;
revoke execute on function :"schema".note_truncated() from public;
