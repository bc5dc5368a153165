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

// Ticks missed during the pause are skipped: ticked_to is the fence of emit_tick, so a relay that computed one of them is refused.
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
