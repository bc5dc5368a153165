import type { Executor } from '../../database/executor.ts';
import { perSchema } from '../../database/identifier.ts';
import { readJson } from '../read-json.ts';

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
