-- Makes a table of the log or the record that can be attached; a name that is taken is an error.
create or replace function :"schema".create_leaf(parent text, leaf text) returns void
language plpgsql set search_path = pg_catalog, pg_temp as $postcommit$
begin
  execute format('create table %1$I.%2$I (like %1$I.%3$I including defaults including constraints including comments
                  including generated including storage including compression)', :'schema', leaf, parent);
  -- An id can be unique within a partition only: an index over all of them would have to contain the seq. The default
  -- partition gathers dead letters of many, and so cannot promise even that.
  if leaf = 'outbox_events_default' then
    execute format('create index %I on %I.%I (id)', leaf || '_id_idx', :'schema', leaf);
  elsif parent = 'outbox_events' then
    execute format('create unique index %I on %I.%I (id)', leaf || '_id_key', :'schema', leaf);
  end if;
end
$postcommit$;
revoke execute on function :"schema".create_leaf(text, text) from public;
