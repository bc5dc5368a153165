import type { Executor } from '../../database/executor.ts';
import { perSchema } from '../../database/identifier.ts';
import { readJson } from '../read-json.ts';

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
