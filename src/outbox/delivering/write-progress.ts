import type { Executor } from '../../database/executor.ts';
import { perSchema } from '../../database/identifier.ts';

// Only for events that this relay still has: a report may be written after its event was settled or taken over.
const writeProgressSql = perSchema(
  (s) => `
with ended as (
  delete from ${s}.outbox_progress p using jsonb_to_recordset($3::jsonb) as e(seq bigint, handler text)
   where p.seq = e.seq and p.handler = e.handler and p.relay = $1::bigint
)
insert into ${s}.outbox_progress as p (seq, handler, relay, attempt, fraction, note)
select i.seq, i.handler, $1::bigint, i.attempt, i.fraction, i.note
  from jsonb_to_recordset($2::jsonb) as i(seq bigint, handler text, attempt integer, fraction double precision, note text)
  join ${s}.outbox_queue q on q.seq = i.seq and q.claimed_by = $1::bigint
on conflict (seq, handler) do update
  set relay = excluded.relay, attempt = excluded.attempt, fraction = excluded.fraction, note = excluded.note,
      since = case when p.relay = excluded.relay and p.attempt = excluded.attempt then p.since else now() end,
      reported_at = now()`,
);

/** What a handler reported about one event. */
export interface WrittenProgress {
  seq: string;
  handler: string;
  attempt: number;
  fraction: number;
  note: string | null;
}

/** Writes the reports of handlers in flight, and deletes those of handlers that have ended. No handler may be in both. */
export async function writeProgress(
  db: Executor,
  schema: string,
  token: string,
  reports: readonly WrittenProgress[],
  ended: readonly { seq: string; handler: string }[],
): Promise<void> {
  await db.query(writeProgressSql(schema), [token, JSON.stringify(reports), JSON.stringify(ended)]);
}

const clearProgressSql = perSchema((s) => `delete from ${s}.outbox_progress where relay = $1::bigint`);

/** Deletes all that the handlers of this relay reported. */
export async function clearProgress(db: Executor, schema: string, token: string): Promise<void> {
  await db.query(clearProgressSql(schema), [token]);
}
