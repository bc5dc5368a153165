import type { Executor } from '../../database/executor.ts';
import { perSchema } from '../../database/identifier.ts';

// Not what has failed before: that waits for its retry. Not what was emitted with a delay.
const recallSql = perSchema(
  (s) => `
with aside as materialized (
  select q.seq from unnest($1::bigint[]) as k(key) cross join lateral (
    select q.seq from ${s}.outbox_queue q join ${s}.outbox_events e on e.seq = q.seq
     where q.key = k.key and q.claimed_by is null and not q.blocking and q.attempts = 0
       and q.available_at > now() and q.available_at < 'infinity'
       and (e.available_at is null or e.available_at <= now())
     order by q.seq limit $2::integer for update of q skip locked
  ) q
), recalled as (
  update ${s}.outbox_queue q set available_at = null where q.seq = any (array(select seq from aside))
  returning q.key
)
select distinct key from recalled`,
);

/**
 * Makes the next events of keys that `deferKeys` put aside ready again. An event that in truth waits behind a failing
 * one is made ready too; the next claim finds that out and defers it anew. Answers the keys of which there were any.
 */
export async function recall(
  db: Executor,
  schema: string,
  keys: readonly string[],
  perKeyMax: number,
): Promise<string[]> {
  const { rows } = await db.query(recallSql(schema), [keys, perKeyMax]);
  return rows.map((row) => row.key as string);
}
