import type { Executor } from '../../database/executor.ts';
import { perSchema } from '../../database/identifier.ts';
import { storeText } from '../../database/storable-text.ts';
import type { InsertableEvent } from '../emitting/insert.ts';
import { eventsJson } from '../emitting/insert.ts';
import { readJson } from '../read-json.ts';

const declareSql = perSchema(
  (s) => `select ${s}.declare_schedules($1::text::bigint, $2::text, $3::text::jsonb)::text as json`,
);

export interface DeclaredSchedule {
  name: string;
  cron: string;
  timeZone: string;
}

/** Records which schedules a relay has. See migrations/routines/declare_schedules.sql. */
export async function declareSchedules(
  db: Executor,
  schema: string,
  relay: { token: string; name: string },
  schedules: readonly DeclaredSchedule[],
): Promise<void> {
  const given = schedules.map(({ name, cron, timeZone }) => ({ name, cron, time_zone: timeZone }));
  await storeText(relay.name, (name) => db.query(declareSql(schema), [relay.token, name, JSON.stringify(given)]));
}

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

const emitTickSql = perSchema(
  (s) => `select to_json(${s}.emit_tick($1::text, $2::text, $3::text::bigint, $4::text::bigint, $5::text::timestamptz,
    $6::text::timestamptz, $7::text::timestamptz, $8::text::bigint, $9::text::jsonb))::text as json`,
);

/** See migrations/routines/emit_tick.sql. */
export type TickResult = 'emitted' | 'gone' | 'stale' | 'paused' | 'early' | 'fenced';

export interface Tick {
  schedule: string;
  /** `tickedToMs` of the row that the tick was computed from. */
  lastMs: number;
  tickMs: number;
  nextMs: number | undefined;
  /** The number of a trigger, for the events of one instead of a tick. */
  trigger?: number;
}

/** Emits the events of a tick and moves the schedule past it, fenced by the duty and by the row. An empty list skips the tick. */
export async function emitTick(
  db: Executor,
  schema: string,
  duty: { name: string; owner: string; epoch: string },
  { schedule, lastMs, tickMs, nextMs, trigger }: Tick,
  events: readonly InsertableEvent[],
): Promise<TickResult> {
  const time = (ms: number) => new Date(ms).toISOString();
  const [result] = await readJson<TickResult>(db, emitTickSql(schema), [
    schedule,
    duty.name,
    duty.owner,
    duty.epoch,
    time(lastMs),
    time(tickMs),
    nextMs === undefined ? null : time(nextMs),
    trigger === undefined ? null : String(trigger),
    eventsJson(events),
  ]);
  return result as TickResult;
}

const recordNextTickSql = perSchema(
  (s) => `
update ${s}.outbox_schedules set next_tick_at = $2::text::timestamptz
 where name = $1::text and date_trunc('milliseconds', ticked_to) = $3::text::timestamptz`,
);

/** Records when the next tick is, for operators. Has no effect if the schedule has moved on meanwhile. */
export async function recordNextTick(
  db: Executor,
  schema: string,
  { schedule, tickedToMs, nextMs }: { schedule: string; tickedToMs: number; nextMs: number },
): Promise<void> {
  const values = [schedule, new Date(nextMs).toISOString(), new Date(tickedToMs).toISOString()];
  await db.query(recordNextTickSql(schema), values);
}

const recordFailureSql = perSchema(
  (s) => `
update ${s}.outbox_schedules set failures = least(failures, 1000000) + 1, error = $2::text where name = $1::text`,
);

/** Records why a schedule could not emit, for operators. */
export async function recordScheduleFailure(db: Executor, schema: string, name: string, error: string): Promise<void> {
  await storeText(error, (text) => db.query(recordFailureSql(schema), [name, text]));
}
