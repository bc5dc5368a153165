-- Records that a consumer processes an event, in the transaction that does the work. Waits for another open transaction that has
-- recorded the same. Returns whether it was recorded; false means that the consumer has processed the event before. With a mark, it
-- records nothing and returns NULL unless the transaction has that mark. It does not fail then: a pool may have given the connection to
-- another caller. A function, because its plan is kept: it takes 120 us less than an INSERT that checks the mark in a WITH.
create or replace function :"schema".record_processed(consumer text, event_id text, mark text default null)
returns boolean language plpgsql set search_path = pg_catalog, pg_temp as $postcommit$
#variable_conflict use_variable
begin
  if mark <> coalesce(current_setting('postcommit.mark', true), '') then
    return null;
  end if;
  insert into :"schema".processed_events (consumer_name, event_id) values (consumer, event_id::uuid)
    on conflict do nothing;
  return found;
end
$postcommit$;
