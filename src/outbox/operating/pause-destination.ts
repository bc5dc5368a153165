import type { Executor } from '../../database/executor.ts';
import { perSchema } from '../../database/identifier.ts';
import { readJson } from '../read-json.ts';

// Only registered destinations: otherwise a misspelt name would silently pause nothing.
const pauseSql = perSchema(
  (s) => `
with paused as (
  update ${s}.outbox_destinations
     set paused_at = coalesce(paused_at, now()), reason = coalesce(nullif($2::text, ''), reason), changed_at = now()
   where destination = $1::text
  returning destination
)
select to_json(destination)::text as json from paused`,
);

/**
 * Pauses a destination: nothing is sent to it, and its events wait. If it is already paused, a new reason replaces the old
 * one. Returns false if no such destination is registered.
 */
export async function pauseDestination(
  db: Executor,
  schema: string,
  destination: string,
  reason: string,
): Promise<boolean> {
  return (await readJson<string>(db, pauseSql(schema), [destination, reason])).length === 1;
}

// Does not close an open circuit. A relay that has found the outage itself sends nothing before it has reached the destination, so
// a destination that is still down would be shown as up until then. Its next probe is due now instead, and the delays between
// probes begin anew.
const resumeSql = perSchema(
  (s) => `
with resumed as (
  update ${s}.outbox_destinations
     set paused_at = null, reason = null, probe_at = case when state = 'open' then now() end, probes = least(probes, 1),
         changed_at = now(), unshelved_at = now()
   where destination = $1::text
  returning destination
)
select to_json(destination)::text as json from resumed`,
);

/** Ends a pause. If the destination is down, a relay probes it immediately. Returns false if no such destination is registered. */
export async function resumeDestination(db: Executor, schema: string, destination: string): Promise<boolean> {
  return (await readJson<string>(db, resumeSql(schema), [destination])).length === 1;
}
