-- Trigger function of outbox_shelf and outbox_dead_letters: counts rows that move to the queue. A trigger, so that rows deleted
-- with plain SQL count too.
--
-- requires: note_requeues
create or replace function :"schema".note_rows_requeued() returns trigger
language plpgsql set search_path = pg_catalog, pg_temp as $postcommit$
begin
  if exists (select from left_for_queue) then
    perform :"schema".note_requeues();
  end if;
  return null;
end
$postcommit$;
