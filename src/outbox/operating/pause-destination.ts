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
export async function pause(db: Executor, schema: string, destination: string, reason: string): Promise<boolean> {
  return (await readJson<string>(db, pauseSql(schema), [destination, reason])).length === 1;
}

// Also closes an open circuit: an operator who resumes a destination considers it up.
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

/** Ends a pause, and also an outage: relays try again immediately. Returns false if no such destination is registered. */
export async function resume(db: Executor, schema: string, destination: string): Promise<boolean> {
  return (await readJson<string>(db, resumeSql(schema), [destination])).length === 1;
}
