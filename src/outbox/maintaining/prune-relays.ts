import type { Executor } from '../../database/executor.ts';
import { perSchema } from '../../database/identifier.ts';
import { readJson } from '../read-json.ts';

/** This many ended relays are kept at any age: event histories name them. */
const endedKept = 1_000;

const pruneRelaysSql = perSchema(
  (s) => `
with beyond as materialized (
  select token from ${s}.outbox_relays where ended_at is not null order by token desc offset ${endedKept} limit 1
), gone as (
  delete from ${s}.outbox_relays r
   where r.token = any (array(
     select token from ${s}.outbox_relays
      where token <= (select token from beyond) and ended_at < now() - interval '1 day'
      order by token limit $1::text::integer))
  returning r.token
), unused as (
  delete from ${s}.outbox_leadership l where l.name like 'schedules:%' and l.lease_until < now() - interval '1 day'
     and not exists (select from ${s}.outbox_relays r where r.token = l.owner and r.ended_at is null)
)
select to_json(count(*))::text as json from gone`,
);

/**
 * Removes the rows of relays that ended over a day ago, except the last ones, and duties of schedules that no relay has any
 * more: there is one for each set of schedules. Returns how many relays. Safe to repeat.
 */
export async function pruneRelays(db: Executor, schema: string, rowsMax: number): Promise<number> {
  const [count = 0] = await readJson<number>(db, pruneRelaysSql(schema), [String(rowsMax)]);
  return count;
}
