import type { Executor } from '../../database/executor.ts';
import { perSchema } from '../../database/identifier.ts';
import type { InsertableEvent } from '../emitting/insert.ts';
import { eventsJson } from '../emitting/insert.ts';
import { readJson } from '../read-json.ts';

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
