import type { Executor } from '../../database/executor.ts';
import { perSchema } from '../../database/identifier.ts';
import { readJson } from '../read-json.ts';

// Events that no claim takes (claim_many): owed neither to a target of a live relay nor to a destination, for which a relay
// would shelve them. `listDestinations` reports shelved events.
const listMissingTargetsSql = perSchema(
  (s) => `
with live as materialized (
  select coalesce(array_agg(distinct t.target), '{}') as targets
    from ${s}.outbox_relays r cross join lateral unnest(r.targets) as t(target) where r.ended_at is null
), known as materialized (
  select coalesce(array_agg(c.destination), '{}') as destinations from ${s}.outbox_destinations c
)
select json_build_object('target', o.target, 'events', count(*))::text as json
  from (select q.owed from ${s}.outbox_queue q where q.owed is not null and not q.blocking
         order by q.seq limit $1::text::integer) q
  cross join lateral unnest(q.owed) as o(target)
 where not q.owed && (select targets from live) and not q.owed && (select destinations from known)
 group by o.target order by count(*) desc, o.target limit 20`,
);

/** A target that queued events are owed to, and that no live relay has. */
export interface MissingTarget {
  /** A handler as `type:name`. */
  target: string;
  /** Events that wait for it, among the first 100,000 of the queue that are owed to any target. */
  events: number;
}

const cap = 100_000;

/** Targets for which events wait in the queue because no live relay has them; the 20 with the most events. */
export async function listMissingTargets(db: Executor, schema: string): Promise<MissingTarget[]> {
  return await readJson<MissingTarget>(db, listMissingTargetsSql(schema), [String(cap)]);
}
