-- Conversion, step 2: validates the constraint of constrain_log(). This reads the whole log and blocks no writer. Another session
-- may have converted the log meanwhile.
create or replace function :"schema".validate_log() returns void
language plpgsql security definer set search_path = pg_catalog, pg_temp set lock_timeout = '2s' as $postcommit$
begin
  lock table only :"schema".outbox_deliveries, only :"schema".outbox_events in share update exclusive mode;
  if (select relkind = 'p' from pg_class where oid = :'schema.outbox_events'::regclass) then
    return;
  end if;
  alter table :"schema".outbox_deliveries validate constraint outbox_deliveries_bound;
  alter table :"schema".outbox_events validate constraint outbox_events_bound;
end
$postcommit$;
revoke execute on function :"schema".validate_log() from public;
