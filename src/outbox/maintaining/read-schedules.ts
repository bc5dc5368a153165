import type { Executor } from '../../database/executor.ts';
import { perSchema } from '../../database/identifier.ts';

const readSql = perSchema(
  (s) => `
select json_build_object(
  'nowMs', floor(extract(epoch from clock_timestamp()) * 1000),
  'schedules', coalesce((
    select json_agg(json_build_object(
             'name', x.name, 'id', x.id, 'cron', x.cron, 'timeZone', x.time_zone, 'paused', x.paused_at is not null,
             'tickedToMs', floor(extract(epoch from x.ticked_to) * 1000),
             'nextTickMs', floor(extract(epoch from x.next_tick_at) * 1000),
             'triggersRequested', x.triggers_requested, 'triggersEmitted', x.triggers_emitted))
      from ${s}.outbox_schedules x where x.name = any ($1::text[])), '[]')
)::text as json`,
);

/** A schedule as the leading relay needs it. */
export interface ScheduleRow {
  name: string;
  id: string;
  cron: string;
  timeZone: string;
  paused: boolean;
  /** Every tick up to this time was emitted or skipped. */
  tickedToMs: number;
  nextTickMs: number | null;
  triggersRequested: number;
  triggersEmitted: number;
}

/** The schedules with these names, and the time by the clock of the database. */
export async function readSchedules(
  db: Executor,
  schema: string,
  names: readonly string[],
): Promise<{ nowMs: number; schedules: ScheduleRow[] }> {
  const { rows } = await db.query(readSql(schema), [names]);
  return JSON.parse(rows[0]?.json as string) as { nowMs: number; schedules: ScheduleRow[] };
}
