import type { Executor } from '../../database/executor.ts';
import { perSchema } from '../../database/identifier.ts';
import { readJson } from '../read-json.ts';

// Only the last attempt of an event counts, and only if it tells of the relays of now: its relay is alive, or no live relay has
// started since. LIMIT 1 makes the planner look up each event and its failure by seq, as in list-dead-letters.ts.
const listUnhandledTypesSql = perSchema(
  (s) => `
with live as materialized (
  select r.token, r.started_at from ${s}.outbox_relays r where r.ended_at is null
), tried as materialized (
  select q.seq, q.attempts
    from (select o.seq, o.attempts, o.blocking from ${s}.outbox_queue o order by o.seq limit $1::text::integer) q
   where q.attempts > 0 and not q.blocking order by q.seq limit $2::text::integer
)
select json_build_object('type', e.event_type, 'events', count(*))::text as json
  from tried t
  cross join lateral (
    select h.relay, h.failed_at from ${s}.outbox_failures h
     where h.seq = t.seq and h.attempt = t.attempts and h.code = 'POSTCOMMIT_E_NO_HANDLER' limit 1) f
  cross join lateral (select l.event_type from ${s}.outbox_events l where l.seq = t.seq limit 1) e
 where f.relay in (select token from live) or not exists (select from live where started_at > f.failed_at)
 group by e.event_type order by count(*) desc, e.event_type limit 20`,
);

/** A type of queued events for which their relay had neither a handler nor a route. */
export interface UnhandledType {
  type: string;
  /** Events whose last attempt failed for this reason, among the 1,000 oldest failed ones of the first 10,000 of the queue. */
  events: number;
}

const queuedMax = 10_000;
const failedMax = 1_000;

/** Types whose events fail because no relay that tried them handles or routes them; the 20 with the most events. */
export async function listUnhandledTypes(db: Executor, schema: string): Promise<UnhandledType[]> {
  return await readJson<UnhandledType>(db, listUnhandledTypesSql(schema), [String(queuedMax), String(failedMax)]);
}
