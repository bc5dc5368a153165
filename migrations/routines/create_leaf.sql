-- Creates a table of the log or the record, ready to be attached. Fails if the name is taken.
create or replace function :"schema".create_leaf(parent text, leaf text) returns void
language plpgsql set search_path = pg_catalog, pg_temp as $postcommit$
begin
  execute format('create table %1$I.%2$I (like %1$I.%3$I including defaults including constraints including comments
                  including generated including storage including compression)', :'schema', leaf, parent);
  -- An id is unique within a partition only: an index over all partitions would have to contain the seq. The default partition
  -- collects dead letters of many partitions, so ids are not unique even there.
  if leaf = 'outbox_events_default' then
    execute format('create index %I on %I.%I (id)', leaf || '_id_idx', :'schema', leaf);
  elsif parent = 'outbox_events' then
    execute format('create unique index %I on %I.%I (id)', leaf || '_id_key', :'schema', leaf);
  end if;
end
$postcommit$;
revoke execute on function :"schema".create_leaf(text, text) from public;
