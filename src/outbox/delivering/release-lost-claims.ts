import type { Executor } from '../../database/executor.ts';
import { perSchema } from '../../database/identifier.ts';

// Two statements: the second one needs a snapshot that was taken after the sessions had ended.
const haveEndedSql = `
select not exists (select from pg_stat_activity where pid = any ($1::integer[])) as ended`;

const releaseLostClaimsSql = perSchema(
  (s) => `
with known as materialized (
  select k.seq from unnest($2::bigint[]) as k(seq)
), released as (
  update ${s}.outbox_queue q set claimed_by = null
   where q.claimed_by = $1::bigint and not exists (select from known k where k.seq = q.seq)
  returning q.seq
)
select count(*)::integer as released from released`,
);

/**
 * Frees the events that this token has claimed and the relay does not know of, if the sessions that may still claim some have ended.
 * Returns how many, or `undefined` if a session is still there. The relay must not claim meanwhile. No index covers `claimed_by`: it reads
 * the whole queue.
 */
export async function releaseLostClaims(
  db: Executor,
  schema: string,
  token: string,
  { sessions, knownSeqs }: { sessions: readonly number[]; knownSeqs: readonly string[] },
): Promise<number | undefined> {
  const { rows: found } = await db.query(haveEndedSql, [sessions]);
  if (found[0]?.ended !== true) return undefined;
  const { rows } = await db.query(releaseLostClaimsSql(schema), [token, knownSeqs]);
  return rows[0]?.released as number;
}
