-- Trigger function of outbox_events_notify, which `postcommit migrate --notify-trigger` installs: wakes listening relays when the
-- transaction commits, whichever client wrote the event. It notifies for a delayed event too: the claim that follows tells the
-- relay when the event is due. The payload * wakes the lanes of all queues: a trigger for each statement does not see the rows.
create or replace function :"schema".notify_trigger() returns trigger
language plpgsql set search_path = pg_catalog, pg_temp as $postcommit$
begin
  notify :"channel", '*';
  return null;
end
$postcommit$;
revoke execute on function :"schema".notify_trigger() from public;
