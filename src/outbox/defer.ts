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

// Counted before anything is locked, because a short backlog is left alone and a lock is a write.
const deferKeysSql = perSchema(
  (s) => `
with long as materialized (
  select k.key, n.count from unnest($1::bigint[]) as k(key) cross join lateral (
    select count(*) as count from (
      select from ${s}.outbox_queue q
       where q.key = k.key and q.lease is null and not q.held and (q.available_at is null or q.available_at <= now())
       limit $2::integer
    ) ready
  ) n
   where n.count >= $3::integer
), backlog as materialized (
  select q.seq, long.key, long.count from long cross join lateral (
    select q.seq from ${s}.outbox_queue q
     where q.key = long.key and q.lease is null and not q.held and (q.available_at is null or q.available_at <= now())
     order by q.seq limit $2::integer for update skip locked
  ) q
), deferred as (
  update ${s}.outbox_queue q set available_at = now() + backlog.count * interval '1 millisecond'
    from backlog where q.seq = backlog.seq
)
select distinct key from backlog`,
);

/** Shorter backlogs cost a claim next to nothing to walk over. */
const longBacklog = 1_000;
const rowsMax = 20_000;

/**
 * The same for keys whose deliveries are slow: a long backlog steps aside while the relay works off what it holds. For
 * one millisecond per event, so that a thousand rows are touched per second however long it is, and a relay that takes
 * over from a crashed one waits for twenty seconds at most. `recall` ends it early. Answers the keys that were deferred.
 */
export async function deferKeys(db: Executor, schema: string, keys: readonly string[]): Promise<string[]> {
  const { rows } = await db.query(deferKeysSql(schema), [keys, rowsMax, longBacklog]);
  return rows.map((row) => row.key as string);
}
