import type { Executor } from '../../database/executor.ts';
import { perSchema } from '../../database/identifier.ts';
import { readJson } from '../read-json.ts';

/** See migrations/routines/forget_target.sql for the contract and the rationale. */
const forgetSql = perSchema(
  (s) => `select ${s}.forget_target($1::text, $2::text::integer, $3::text::bigint, $4::text::bigint)::text as json`,
);

/** What happens to the events that are owed to a forgotten target. */
export interface ForgottenEvents {
  /** Events that have reached other targets and owe nothing else: SENT, recorded without this target. */
  sent: number;
  /** Events that have reached no target: discarded dead letters with the reason `forgotten`. */
  discarded: number;
  /** Events that also wait for other destinations: they keep waiting for these. */
  stillWaiting: number;
  /** Events in the queue that also owe other targets, or waited for a handler: relays deliver them without this target. */
  queued: number;
  /** Dead letters: a retry no longer waits for this target. */
  deadLetters: number;
}

export type ForgottenChunk =
  | { inUse: true }
  | ({
      inUse: false;
      /** Events that a relay has claimed: they may be shelved for this target again. 0 before the last chunk. */
      inFlight: number;
      /** Whether nothing is left except claimed events. */
      finished: boolean;
    } & ForgetCursor &
      ForgottenEvents);

/** The seqs that a chunk came to: of dead letters, and of the queue. `null` when it came to the end. */
export interface ForgetCursor {
  lettersReached: string | null;
  queueReached: string | null;
}

/**
 * Forgets one chunk of what is owed to a target, from where the chunk before ended. `inUse`: a live relay has the target, and
 * nothing was changed.
 */
export async function forget(
  db: Executor,
  schema: string,
  target: string,
  rowsMax: number,
  { lettersReached, queueReached }: ForgetCursor = { lettersReached: '0', queueReached: '0' },
): Promise<ForgottenChunk> {
  const values = [target, String(rowsMax), lettersReached, queueReached];
  const [chunk] = await readJson<ForgottenChunk>(db, forgetSql(schema), values);
  return chunk as ForgottenChunk;
}

const previewSql = perSchema(
  (s) => `
with waiting as materialized (
  select coalesce(h.done, '{}') <> '{}' as reached,
         not exists (select from ${s}.outbox_shelf o where o.seq = h.seq and o.destination <> $1::text) as alone
    from ${s}.outbox_shelf h where h.destination = $1::text order by h.seq limit $2::text::integer
), queued as materialized (
  select coalesce(q.done, '{}') <> '{}' as reached,
         $1::text not like '%:%' and q.owed <@ array[$1::text] as alone
    from ${s}.outbox_queue q
   where q.owed is not null and not q.blocking and $1::text = any (q.owed) order by q.seq limit $2::text::integer
), affected as (
  select true as shelved, w.* from waiting w union all select false, q.* from queued q
)
select json_build_object(
  'known', exists (select from ${s}.outbox_destinations c where c.destination = $1::text),
  'usedBy', array(select distinct r.name from ${s}.outbox_relays r
                   where r.ended_at is null and $1::text = any (r.targets) order by r.name),
  'sent', count(*) filter (where a.alone and a.reached),
  'discarded', count(*) filter (where a.alone and not a.reached),
  'stillWaiting', count(*) filter (where not a.alone and a.shelved),
  'queued', count(*) filter (where not a.alone and not a.shelved),
  'deadLetters', (select count(*) from (
     select from ${s}.outbox_dead_letters d where $1::text = any (d.owed) limit $2::text::integer) d)
)::text as json
  from affected a`,
);

export interface ForgetPreview extends ForgottenEvents {
  /** Whether a relay was ever started with such a destination. */
  known: boolean;
  /** Live relays that have it, by name. */
  usedBy: string[];
}

const cap = 100_000;

/** What forgetting a target would do. Counts are capped at 100,000. */
export async function previewForget(db: Executor, schema: string, target: string): Promise<ForgetPreview> {
  const [preview] = await readJson<ForgetPreview>(db, previewSql(schema), [target, String(cap)]);
  return preview as ForgetPreview;
}
