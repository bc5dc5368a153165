-- Trigger function of outbox_events and outbox_queue: TRUNCATE ... RESTART IDENTITY resets the sequence of the log, which makes
-- every low-water mark invalid.
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
