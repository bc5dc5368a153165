import type { Executor } from '../../database/executor.ts';
import { perSchema } from '../../database/identifier.ts';
import { covers } from '../maintaining/partition.ts';
import { readJson } from '../read-json.ts';

// By the primary key of the log and the index of the record only, so it costs the same on any number of events. CASE: the
// record is searched last, it costs the most. Replayed and delayed events would show their age, so the latest events decide.
const sampleLatencySql = perSchema(
  (s) => `
with newest as materialized (
  select e.seq, greatest(e.created_at, e.available_at) as due_at from ${s}.outbox_events e order by e.seq desc limit $1::text::integer
), delivered as materialized (
  select extract(epoch from x.delivered_at - n.due_at) * 1000 as ms
    from newest n cross join lateral (
      select x.delivered_at from ${s}.outbox_deliveries x where ${covers('x', 'n.seq')} order by x.delivered_at limit 1
    ) x
   where n.due_at > now() - $2::text::double precision * interval '1 millisecond'
)
select json_build_object(
  'at', floor(extract(epoch from now()) * 1000), 'lastSeq', coalesce((select max(seq) from newest), 0)::text,
  'samples', count(*), 'p50Ms', percentile_cont(0.5) within group (order by greatest(ms, 0)),
  'p95Ms', percentile_cont(0.95) within group (order by greatest(ms, 0))
)::text as json from delivered`,
);

/** How long the newest events took from their due time (their emit, unless they were delayed) to their first delivery record. */
export interface LatencySample {
  /** Milliseconds since 1970, by the database's clock. */
  at: number;
  /** The highest seq of the log. */
  lastSeq: string;
  /** Delivered events among the newest. */
  samples: number;
  /** `null` without samples. */
  p50Ms: number | null;
  p95Ms: number | null;
}

/** Looks at the newest `eventsMax` events, without those that were due longer ago than `withinMs`. */
export async function sampleLatency(
  db: Executor,
  schema: string,
  { eventsMax, withinMs }: { eventsMax: number; withinMs: number },
): Promise<LatencySample> {
  const [sample] = await readJson<LatencySample>(db, sampleLatencySql(schema), [String(eventsMax), String(withinMs)]);
  return sample as LatencySample;
}
