import type { Executor } from '../../database/executor.ts';
import { perSchema } from '../../database/identifier.ts';
import { readJson } from '../read-json.ts';

const pauseSql = perSchema(
  (s) => `
with changed as (
  update ${s}.outbox_schedules
     set paused_at = coalesce(paused_at, now()), reason = coalesce(nullif($2::text, ''), reason), changed_at = now()
   where name = $1::text
  returning name
)
select to_json(name)::text as json from changed`,
);

/** Pauses a schedule. If it is already paused, a new reason replaces the old one. Returns false if there is no such schedule. */
export async function pauseSchedule(db: Executor, schema: string, name: string, reason: string): Promise<boolean> {
  return (await readJson<string>(db, pauseSql(schema), [name, reason])).length === 1;
}

// Ticks of the time before are skipped: ticked_to is the fence of emit_tick, so a relay that computed one of them is refused.
const resumeSql = perSchema(
  (s) => `
with changed as (
  update ${s}.outbox_schedules
     set paused_at = null, reason = null, changed_at = now(), failures = 0, error = null,
         ticked_to = case when paused_at is null then ticked_to
                          else greatest(ticked_to, date_trunc('milliseconds', clock_timestamp())) end,
         next_tick_at = case when paused_at is null then next_tick_at end
   where name = $1::text
  returning name
)
select to_json(name)::text as json from changed`,
);

/** Ends a pause; ticks of that time are skipped. Returns false if there is no such schedule. */
export async function resumeSchedule(db: Executor, schema: string, name: string): Promise<boolean> {
  return (await readJson<string>(db, resumeSql(schema), [name])).length === 1;
}

/** How many triggers may wait for a relay. */
export const triggersMax = 100;

const triggerSql = perSchema(
  (s) => `
with changed as (
  update ${s}.outbox_schedules set triggers_requested = triggers_requested + 1
   where name = $1::text and triggers_requested - triggers_emitted < ${triggersMax}
  returning triggers_requested
)
select json_build_object(
  'exists', exists (select from ${s}.outbox_schedules where name = $1::text),
  'number', (select triggers_requested from changed))::text as json`,
);

/** Asks the leading relay for one event. Returns the trigger's number; `null` if too many wait; `undefined` if there is no such schedule. */
export async function triggerSchedule(db: Executor, schema: string, name: string): Promise<number | null | undefined> {
  const [row] = await readJson<{ exists: boolean; number: number | null }>(db, triggerSql(schema), [name]);
  return row?.exists ? row.number : undefined;
}

const isTriggerEmittedSql = perSchema(
  (s) =>
    `select to_json(triggers_emitted >= $2::text::bigint)::text as json from ${s}.outbox_schedules where name = $1::text`,
);

/** Whether a relay has emitted a trigger. */
export async function isTriggerEmitted(db: Executor, schema: string, name: string, number: number): Promise<boolean> {
  const [emitted = false] = await readJson<boolean>(db, isTriggerEmittedSql(schema), [name, String(number)]);
  return emitted;
}

const removeSql = perSchema(
  (s) => `
with found as (
  select x.name, exists (
           select from jsonb_object_keys(x.declarations) d
             join ${s}.outbox_relays r on r.token = d::bigint and r.ended_at is null) as in_use
    from ${s}.outbox_schedules x where x.name = $1::text for update
), gone as (
  delete from ${s}.outbox_schedules x where x.name in (select f.name from found f where not f.in_use)
)
select to_json(in_use)::text as json from found`,
);

/** Removes a schedule that no live relay has. Returns whether one has it; `undefined` if there is no such schedule. */
export async function removeSchedule(db: Executor, schema: string, name: string): Promise<boolean | undefined> {
  const [inUse] = await readJson<boolean>(db, removeSql(schema), [name]);
  return inUse;
}
