-- Emits the events of one tick of a schedule and moves the schedule past it, in one transaction. Returns what it did:
--   emitted   the events are in the log
--   gone      there is no such schedule
--   stale     another relay has emitted the tick, or an operator has resumed the schedule: read the row again
--   paused    an operator has paused the schedule
--   early     the tick is in the future by the clock of this database
--   fenced    the relay no longer has the duty
--
-- Each tick is emitted once, whatever relays believe: the row is locked, `last` must be its ticked_to, and the duty must have this
-- owner and epoch. The lock on the duty makes a relay that takes over wait for this transaction. It is taken after the keys'
-- locks, because renewing the duty waits for it, and an emitter with an open transaction may hold a key; lock_timeout bounds that.
-- Event ids derive from the tick, so emit_once() would skip a tick that is in the log already.
--
-- An empty list skips the ticks up to this one. With trigger_number it emits that trigger instead of a tick, also while
-- the schedule is paused: `last` and `tick` have no effect then.
--
-- Runs with the rights of its caller: a relay that has schedules needs those of an emitter as well.
--
-- requires: emit_once, key_hash, lock_keys
create or replace function :"schema".emit_tick(
  schedule text, duty text, owner bigint, epoch bigint, last timestamptz, tick timestamptz, next_tick timestamptz,
  trigger_number bigint, events jsonb
) returns text
language plpgsql set search_path = pg_catalog, pg_temp set row_security = off set lock_timeout = '2s' as $postcommit$
#variable_conflict use_column
declare
  found_row record;
  is_trigger constant boolean := trigger_number is not null;
begin
  select s.ticked_to, s.paused_at, s.triggers_requested, s.triggers_emitted into found_row
    from :"schema".outbox_schedules s where s.name = schedule for update;
  if not found then
    return 'gone';
  end if;
  if is_trigger then
    if trigger_number <> found_row.triggers_emitted + 1 or trigger_number > found_row.triggers_requested then
      return 'stale';
    end if;
  elsif date_trunc('milliseconds', found_row.ticked_to) <> last or tick <= found_row.ticked_to then
    return 'stale';
  elsif found_row.paused_at is not null then
    return 'paused';
  elsif tick > clock_timestamp() then
    return 'early';
  end if;

  perform :"schema".lock_keys(array(
    select :"schema".key_hash(e.aggregate_type, e.aggregate_id, e.ordering_key)
      from jsonb_to_recordset(events) as e(aggregate_type text, aggregate_id text, ordering_key text)));
  perform from :"schema".outbox_leadership l
    where l.name = duty and l.epoch = emit_tick.epoch and l.owner = emit_tick.owner for share;
  if not found then
    return 'fenced';
  end if;

  if events <> '[]' then
    perform :"schema".emit_once(events);
  end if;
  update :"schema".outbox_schedules s
     set ticked_to = case when is_trigger then s.ticked_to else tick end,
         last_tick_at = case when is_trigger or events = '[]' then s.last_tick_at else tick end,
         next_tick_at = case when is_trigger then s.next_tick_at else next_tick end,
         triggers_emitted = s.triggers_emitted + is_trigger::integer,
         emitted = s.emitted + (events <> '[]')::integer,
         failures = 0, error = null
   where s.name = schedule;
  return 'emitted';
end
$postcommit$;
