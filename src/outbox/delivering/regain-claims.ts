import type { ArrayQuery } from '../../database/executor.ts';
import { perSchema } from '../../database/identifier.ts';

// The ids are compared because a server that has replicated less gives the same seqs to other events. A free row counts as
// the relay's own: its claim is what the server has lost. Not if an attempt was counted since: then another relay has had the
// event. An event of the log that is not in the queue has ended: its result is written, and only the answer was lost.
// `claimed_by` 0 is an event that was cancelled while this relay delivers it. Rows are locked in order of seq: both
// connections of a relay may do this at the same time.
//
// Tokens of ended relays are listed, instead of those of live ones being excluded: a relay that has registered and claimed
// after the snapshot of this statement is in neither list.
const regainClaimsSql = perSchema(
  (s) => `
with mine as materialized (
  select k.seq, k.attempts, coalesce(e.id = k.id, false) as logged
    from unnest($2::bigint[], $3::uuid[], $4::integer[]) as k(seq, id, attempts)
    left join ${s}.outbox_events e on e.seq = k.seq
   where (k.id is null or e.id is null or e.id = k.id)
     and exists (select from ${s}.outbox_relays r where r.token = $1::bigint and r.ended_at is null)
), found as materialized (
  select q.seq, q.claimed_by is distinct from $1::bigint and q.claimed_by is distinct from 0 as free
    from ${s}.outbox_queue q join mine m on m.seq = q.seq
   where q.claimed_by in ($1::bigint, 0)
      or (q.attempts = m.attempts and not q.blocking
          and (q.claimed_by is null
               or q.claimed_by = any (array(select r.token from ${s}.outbox_relays r where r.ended_at is not null))))
   order by q.seq for update of q
), ended as (
  select m.seq from mine m where m.logged and not exists (select from ${s}.outbox_queue q where q.seq = m.seq)
), regained as (
  update ${s}.outbox_queue q set claimed_by = $1::bigint
   where q.seq = any (array(select f.seq from found f where f.free)) returning q.seq
)
select ${s}.server_run(), array_to_string(array(select f.seq from found f union all select d.seq from ended d), ','),
       (select count(*)::integer from regained),
       exists (select from ${s}.outbox_relays r where r.ended_at is null and r.token <> $1::bigint)`,
);

/** An event as the relay has claimed it. */
export interface Claim {
  seq: string;
  /** Empty if it is not known. */
  id: string;
  attempts: number;
}

export interface RegainedClaims {
  /** Identifies the server, as `readServerRun` does. */
  server: string;
  /** The events that the relay owns there, or that have ended. */
  owned: ReadonlySet<string>;
  /** How many of these were free: the server had lost their claims. */
  regained: number;
  /** Whether there are other relays. */
  isShared: boolean;
}

/**
 * Claims again what the relay has claimed, on a server that is not the one it claimed on: a crash loses the last claims, because they
 * are not written to disk at once, and a failover may lose events too.
 */
export async function regainClaims(
  query: ArrayQuery,
  schema: string,
  token: string,
  claims: readonly Claim[],
): Promise<RegainedClaims> {
  const seqs = claims.map(({ seq }) => seq);
  const ids = claims.map(({ id }) => id || null);
  const attempts = claims.map((claim) => claim.attempts);
  const { rows } = await query(regainClaimsSql(schema), [token, seqs, ids, attempts]);
  const [server, owned, regained, isShared] = rows[0] as [string, string, number, boolean];
  return { server, owned: new Set(owned === '' ? [] : owned.split(',')), regained, isShared };
}
