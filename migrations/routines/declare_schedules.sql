-- Records which schedules a relay has: [{"name", "cron", "time_zone"}]. A new schedule counts from now, so its past ticks are
-- not emitted. A schedule that the relay does not have is not changed.
--
-- While live relays declare different expressions, as in a rolling deployment, the one in the row stays in force, so that two
-- leading relays never take turns in changing it. It is replaced when no live relay declares it any more. The new one counts
-- from then: no tick is emitted for the time before.
create or replace function :"schema".declare_schedules(relay bigint, relay_name text, schedules jsonb) returns void
language plpgsql set search_path = pg_catalog, pg_temp set row_security = off as $postcommit$
declare
  given record;
  known record;
  others jsonb;
  moment timestamptz;
begin
  -- In a fixed order, so that two relays do not deadlock.
  for given in
    select x.name, x.cron, x.time_zone
      from jsonb_to_recordset(schedules) as x(name text, cron text, time_zone text) order by x.name
  loop
    insert into :"schema".outbox_schedules (name, cron, time_zone, declared_by)
      values (given.name, given.cron, given.time_zone, relay_name) on conflict (name) do nothing;
    select s.* into known from :"schema".outbox_schedules s where s.name = given.name for update;
    continue when not found;
    others := coalesce((
      select jsonb_object_agg(d.key, d.value) from jsonb_each(known.declarations) d
        join :"schema".outbox_relays r on r.token = d.key::bigint and r.ended_at is null
       where d.key <> relay::text), '{}');
    update :"schema".outbox_schedules s
       set declared_by = relay_name, declared_at = now(),
           declarations = others || jsonb_build_object(relay::text, jsonb_build_object(
             'relay', relay_name, 'cron', given.cron, 'timeZone', given.time_zone))
     where s.name = given.name;
    if (known.cron, known.time_zone) is distinct from (given.cron, given.time_zone) and not exists (
         select from jsonb_each(others) d
          where d.value ->> 'cron' = known.cron and d.value ->> 'timeZone' = known.time_zone) then
      moment := date_trunc('milliseconds', clock_timestamp());
      update :"schema".outbox_schedules s
         set cron = given.cron, time_zone = given.time_zone, ticked_to = greatest(s.ticked_to, moment),
             next_tick_at = null, changed_at = now()
       where s.name = given.name;
    end if;
  end loop;
end
$postcommit$;
