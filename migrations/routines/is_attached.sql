-- Whether a table of this name is a partition of the log or the record.
create or replace function :"schema".is_attached(leaf text) returns boolean
language sql stable set search_path = pg_catalog, pg_temp as $postcommit$
  select exists (
    select from pg_inherits
     where inhrelid = to_regclass(format('%I.%I', :'schema', leaf))
       and inhparent in (to_regclass(format('%I.outbox_events', :'schema')),
                         to_regclass(format('%I.outbox_deliveries', :'schema'))))
$postcommit$;
revoke execute on function :"schema".is_attached(text) from public;
