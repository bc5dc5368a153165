-- Creates a partition and attaches it. ATTACH does not block writers; CREATE TABLE ... PARTITION OF would.
--
-- requires: create_leaf, is_attached
create or replace function :"schema".create_partition(n bigint) returns void
language plpgsql set search_path = pg_catalog, pg_temp set lock_timeout = '500ms' as $postcommit$
declare
  room constant bigint := 1000000000000;
  parent text;
  leaf text;
  options text;
begin
  foreach parent in array array['outbox_events', 'outbox_deliveries'] loop
    leaf := parent || '_p' || n;
    if not :"schema".is_attached(leaf) then
      perform :"schema".create_leaf(parent, leaf);
      -- Storage parameters that an operator set on a partition, e.g. for autovacuum, carry over to the next.
      select array_to_string(c.reloptions, ', ') into options from pg_class c
       where c.relnamespace = to_regnamespace(quote_ident(:'schema')) and c.relispartition
         and c.relname ~ format('^%s_p\d+$', parent)
       order by length(c.relname) desc, c.relname desc limit 1;
      if options is not null then
        execute format('alter table %I.%I set (%s)', :'schema', leaf, options);
      end if;
      execute format('alter table %1$I.%2$I attach partition %1$I.%3$I for values from (%4$s) to (%5$s)',
                     :'schema', parent, leaf, n * room, (n + 1) * room);
    end if;
  end loop;
  insert into :"schema".outbox_partitions (number) values (n)
    on conflict (number) do update set created_at = now(), awaits = null;
end
$postcommit$;
revoke execute on function :"schema".create_partition(bigint) from public;
