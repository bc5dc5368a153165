import type { Executor } from '../../database/executor.ts';
import { perSchema } from '../../database/identifier.ts';
import { readJson } from '../read-json.ts';
import type { Chunk, EventConditions } from './conditions.ts';
import { Conditions, conditionsGoHere, whereEvent } from './conditions.ts';

// Each branch is read in order of seq and stops at the chunk limit, as in list.ts.
const listUndeliveredSql = perSchema((s) => {
  const chunk = `${conditionsGoHere} order by u.seq limit $1::text::integer`;
  return `
select to_json(u.seq::text)::text as json from (
  (select u.seq from ${s}.outbox_queue u join ${s}.outbox_events e on e.seq = u.seq where not u.blocking ${chunk})
  union
  (select distinct u.seq from ${s}.outbox_shelf u join ${s}.outbox_events e on e.seq = u.seq where true ${chunk})
) u
 order by u.seq limit $1::text::integer`;
});

/** The seqs of a chunk of the events that match and are in the queue or on the shelf, up to `seqUntil`, lowest first. */
export async function listUndelivered(
  db: Executor,
  schema: string,
  events: EventConditions,
  { after, limit, seqUntil }: Chunk & { seqUntil: string },
): Promise<string[]> {
  const conditions = whereEvent(new Conditions([String(limit)]), events)
    .where(after, (v) => `u.seq > ${v}::bigint`)
    .where(seqUntil, (v) => `u.seq <= ${v}::bigint`);
  return readJson<string>(db, conditions.into(listUndeliveredSql(schema)), conditions.values);
}
