-- Returns the names of the queues that have undelivered events, at most 1,000, in order. Skips from name to name in both indexes,
-- so that a million events of one queue cost two lookups.
create or replace function :"schema".queue_names() returns setof text
language plpgsql stable set search_path = pg_catalog, pg_temp set row_security = off
set enable_seqscan = off set enable_bitmapscan = off set plan_cache_mode = force_generic_plan set jit = off
as $postcommit$
declare
  name text collate "C" := '';
begin
  for i in 1 .. 1000 loop
    select least(
             (select q.queue from :"schema".outbox_queue q where q.available_at is null and q.queue > name order by q.queue limit 1),
             (select q.queue from :"schema".outbox_queue q where q.available_at is not null and q.queue > name order by q.queue limit 1))
      into name;
    exit when name is null;
    return next name;
  end loop;
end
$postcommit$;
