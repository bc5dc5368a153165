import type { Executor } from '../../database/executor.ts';
import { perSchema } from '../../database/identifier.ts';

/** Shorter backlogs cost a claim next to nothing to walk over. */
const longBacklog = 1_000;
const rowsMax = 20_000;

// The rows themselves and the event they wait for are locked, so that nothing is put behind an event that is being
// settled or resolved at this moment and nobody would wake it again.
const deferSql = perSchema(
  (s) => `
with met as materialized (
  select key, min(seq) as seq from ${s}.outbox_queue where seq = any ($1::bigint[]) group by key
), blocked as materialized (
  select q.seq, q.key from met cross join lateral (
    select q.seq, q.key from ${s}.outbox_queue q
     where q.key = met.key and q.seq >= met.seq and q.claimed_by is null and not q.blocking
       and (q.available_at is null or q.available_at <= now())
     order by q.seq limit $2::integer for update skip locked
  ) q
), front as materialized (
  select f.key, f.near, f.count, p.available_at
    from (select key, min(seq) as seq, count(*) as count, (array_agg(seq order by seq))[${longBacklog}] as near
            from blocked group by key) f
    cross join lateral (
      select q.available_at from ${s}.outbox_queue q
       where q.key = f.key and q.seq < f.seq and q.claimed_by is null and q.available_at > now()
       order by q.seq desc limit 1 for share skip locked
    ) p
)
update ${s}.outbox_queue q
   set available_at = front.available_at
       + case when q.seq > front.near then front.count else 0 end * interval '1 millisecond'
  from front where q.key = front.key and q.seq = any (array(select seq from blocked))`,
);

/**
 * Takes events that wait behind a waiting event of their key out of the ready index, until that event is due: a long
 * queue behind one failing aggregate must not be walked over by every claim. It takes their whole key in one go. The first
 * thousand become due together with the one they wait for, so nobody has to wake them, those further back some seconds
 * later: should it fail again, not all of a long backlog has to be put back. `recall` ends that early when it succeeds.
 * Behind a blocking dead letter all wait for whoever resolves it.
 */
export async function defer(db: Executor, schema: string, seqs: readonly string[]): Promise<void> {
  await db.query(deferSql(schema), [seqs, rowsMax]);
}

// Counted before anything is locked, because a short backlog is left alone and a lock is a write.
const deferKeysSql = perSchema(
  (s) => `
with long as materialized (
  select k.key, n.count from unnest($1::bigint[]) as k(key) cross join lateral (
    select count(*) as count from (
      select from ${s}.outbox_queue q
       where q.key = k.key and q.claimed_by is null and not q.blocking and (q.available_at is null or q.available_at <= now())
       limit $2::integer
    ) ready
  ) n
   where n.count >= $3::integer
), backlog as materialized (
  select q.seq, long.key from long cross join lateral (
    select q.seq from ${s}.outbox_queue q
     where q.key = long.key and q.claimed_by is null and not q.blocking and (q.available_at is null or q.available_at <= now())
     order by q.seq limit $2::integer for update skip locked
  ) q
), deferred as (
  update ${s}.outbox_queue q set available_at = now() + long.count * interval '1 millisecond'
    from long where q.key = long.key and q.seq = any (array(select seq from backlog))
)
select distinct key from backlog`,
);

/**
 * The same for keys whose deliveries are slow: a long backlog steps aside while the relay works off what it holds. For
 * one millisecond per event, so that a thousand rows are touched per second however long it is, and a relay that takes
 * over from a crashed one waits for twenty seconds at most. `recall` ends it early. Answers the keys that were deferred.
 */
export async function deferKeys(db: Executor, schema: string, keys: readonly string[]): Promise<string[]> {
  const { rows } = await db.query(deferKeysSql(schema), [keys, rowsMax, longBacklog]);
  return rows.map((row) => row.key as string);
}
