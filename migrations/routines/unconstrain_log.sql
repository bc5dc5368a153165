-- Removes the constraint of constrain_log() when the conversion is abandoned.
create or replace function :"schema".unconstrain_log() returns void
language plpgsql security definer set search_path = pg_catalog, pg_temp set lock_timeout = '200ms' as $postcommit$
begin
  if (select relkind = 'p' from pg_class where oid = :'schema.outbox_events'::regclass) then
    return;
  end if;
  alter table :"schema".outbox_events drop constraint if exists outbox_events_bound;
  alter table :"schema".outbox_deliveries drop constraint if exists outbox_deliveries_bound;
end
$postcommit$;
revoke execute on function :"schema".unconstrain_log() from public;
