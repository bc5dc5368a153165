import type { Executor } from '../../database/executor.ts';
import { perSchema } from '../../database/identifier.ts';
import { readJson } from '../read-json.ts';

// Known is what a relay has entered: a misspelt name would otherwise pause nothing, silently.
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
 * Nothing is sent to the destination from now on; its events wait. Where it is paused already, a reason replaces the one
 * there was. False: no relay has entered such a destination.
 */
export async function pause(db: Executor, schema: string, destination: string, reason: string): Promise<boolean> {
  return (await readJson<string>(db, pauseSql(schema), [destination, reason])).length === 1;
}

// An open circuit is closed as well: whoever resumes a destination says that it is there.
const resumeSql = perSchema(
  (s) => `
with resumed as (
  update ${s}.outbox_destinations
     set paused_at = null, reason = null, state = 'closed', opened_at = null, error = null, probe_at = null, probes = 0,
         changed_at = now(), unshelved_at = now()
   where destination = $1::text
  returning destination
)
select to_json(destination)::text as json from resumed`,
);

/** Ends a pause, and an outage too: relays try at once. False: no relay has entered such a destination. */
export async function resume(db: Executor, schema: string, destination: string): Promise<boolean> {
  return (await readJson<string>(db, resumeSql(schema), [destination])).length === 1;
}
