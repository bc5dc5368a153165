import type { Executor } from '../database/executor.ts';
import { perSchema } from '../database/identifier.ts';

// The rows themselves and the event they wait for are locked, so that nothing is put behind an event that is being
// settled or resolved at this moment and nobody would wake it again.
const deferSql = perSchema(
  (s) => `
with blocked as materialized (
  select q.seq, q.key from ${s}.outbox_queue q
   where q.seq = any ($1::bigint[]) and q.lease is null and not q.held
     and (q.available_at is null or q.available_at <= now())
   order by q.seq for update skip locked
), front as materialized (
  select f.key, p.available_at
    from (select key, min(seq) as seq from blocked group by key) f
    cross join lateral (
      select q.available_at from ${s}.outbox_queue q
       where q.key = f.key and q.seq < f.seq and q.lease is null and q.available_at > now()
       order by q.seq desc limit 1 for share skip locked
    ) p
)
update ${s}.outbox_queue q set available_at = front.available_at
  from blocked join front on front.key = blocked.key
 where q.seq = blocked.seq`,
);

/**
 * Takes events that wait behind a waiting event of their key out of the ready index, until that event is due: a long
 * queue behind one failing aggregate must not be walked over by every claim. They become due together with it, so
 * nobody has to wake them; behind a held dead letter they wait for whoever resolves it.
 */
export async function defer(db: Executor, schema: string, seqs: readonly string[]): Promise<void> {
  await db.query(deferSql(schema), [seqs]);
}

const deferKeySql = perSchema(
  (s) => `
with ranked as (
  select q.seq, row_number() over (order by q.seq) as n from (
    select seq from ${s}.outbox_queue
     where key = $1::bigint and lease is null and not held and (available_at is null or available_at <= now())
     order by seq limit $2::integer for update skip locked
  ) q
)
update ${s}.outbox_queue q
   set available_at = now() + least(600000, greatest($3::double precision, $4::double precision * ranked.n / 2))
                              * interval '1 millisecond'
  from ranked where ranked.seq = q.seq`,
);

/**
 * The same for a key whose deliveries are slow: its backlog steps aside, those further back for longer, while this
 * relay works off what it holds. Never longer than ten minutes, so that a key that got fast again is not forgotten.
 */
export async function deferKey(
  db: Executor,
  schema: string,
  key: string,
  limits: { rowsMax: number; delayMs: number; serviceMs: number },
): Promise<void> {
  await db.query(deferKeySql(schema), [key, limits.rowsMax, limits.delayMs, limits.serviceMs]);
}
