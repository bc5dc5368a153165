import type { Executor } from '../../database/executor.ts';
import { perSchema } from '../../database/identifier.ts';
import { arrayText, readJson } from '../read-json.ts';

// Not what is parked (infinity): that waits for a blocking dead letter. A relay that claims an event in this very moment is not
// disturbed: what it does with the event sets or removes the time anyway.
const makeDueSql = perSchema(
  (s) => `
with alive as materialized (
  select token from ${s}.outbox_relays where ended_at is null
), chosen as materialized (
  select q.seq from ${s}.outbox_queue q
   where q.seq = any ($1::text::bigint[]) and not q.blocking and q.available_at > now() and q.available_at < 'infinity'
     and (q.claimed_by is null or q.claimed_by not in (select token from alive))
   order by q.seq for update
), changed as (
  update ${s}.outbox_queue q set available_at = null where q.seq = any (array(select seq from chosen))
)
select json_build_object(
  'count', (select count(*) from chosen),
  'inFlight', (select count(*) from ${s}.outbox_queue q
                where q.seq = any ($1::text::bigint[]) and q.claimed_by in (select token from alive)))::text as json`,
);

/** What one statement did with undelivered events. */
export interface UndeliveredChange {
  /** Events changed. */
  count: number;
  /** Events left unchanged because a live relay has claimed them. */
  inFlight: number;
}

/** Makes events due now that are delayed or in backoff. Call `undefer` after this has committed. */
export async function makeDue(db: Executor, schema: string, seqs: readonly string[]): Promise<UndeliveredChange> {
  const [result] = await readJson<UndeliveredChange>(db, makeDueSql(schema), [arrayText(seqs)]);
  return result as UndeliveredChange;
}
