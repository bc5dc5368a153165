import type { Executor } from '../../database/executor.ts';
import { perSchema } from '../../database/identifier.ts';

// One relay at a time, for all destinations: an event may wait for two of them, and is taken from the shelf for both.
// The lowest seqs first, and in one transaction with the queue, so that a claim sees an event in one place or the
// other, never in both or in neither.
const unshelveText = (s: string, chosen: string) => `
with gate as materialized (
  select c.destination, c.unshelved_at from ${s}.outbox_destinations c
   where c.destination = $1::text and c.state = 'closed' and c.paused_at is null
     and pg_try_advisory_xact_lock(hashtextextended('postcommit.unshelve', hashtextextended($4::text, 0)))
     for update
), allowed as materialized (
  -- Not below zero, which LIMIT refuses: after the clock was set back nothing is taken until \`reanchor\` was run.
  select greatest(0, least($3::integer, floor($2::double precision * least(1, coalesce(
           extract(epoch from clock_timestamp() - gate.unshelved_at)::double precision, 0.25)))))::integer as count
    from gate
), ${chosen}, gone as (
  delete from ${s}.outbox_shelf h where h.seq = any (array(select seq from chosen))
  returning h.seq, h.key, h.attempts, h.rescues, h.done, h.replay_id, h.destination
), back as (
  -- Owed to every destination it waited for: a relay that lacks them must not settle it.
  insert into ${s}.outbox_queue (seq, key, attempts, rescues, done, replay_id, owed)
  select seq, min(key), min(attempts), min(rescues), min(done), min(replay_id),
         array_agg(destination order by destination)
    from gone group by seq order by seq
  on conflict (seq) do nothing
), marked as (
  update ${s}.outbox_destinations c
     set unshelved_at = greatest(coalesce(c.unshelved_at, clock_timestamp() - interval '250 milliseconds'),
                                 clock_timestamp() - interval '1 second')
                        + (select count(*) from chosen) / $2::double precision * interval '1 second'
   where c.destination = (select destination from gate) and exists (select from chosen)
)
select count(*)::integer as count from chosen`;

const unshelveSql = perSchema((s) =>
  unshelveText(
    s,
    `chosen as materialized (
  select h.seq from ${s}.outbox_shelf h
   where h.destination = (select destination from gate) order by h.seq limit (select count from allowed)
)`,
  ),
);

// Keys are hashes, so a random number finds a random key. Events without a key are found by a random seq. Of each key the
// lowest seq is taken: what comes back of a key is older than what stays, as in a drain.
const unshelveTrialSql = perSchema((s) =>
  unshelveText(
    s,
    `bounds as materialized (
  select g.destination,
         (select min(h.seq) from ${s}.outbox_shelf h where h.destination = g.destination) as low,
         (select max(h.seq) from ${s}.outbox_shelf h where h.destination = g.destination) as high
    from gate g
), draw as materialized (
  select b.destination, ((random() - 0.5) * 1.8e19)::bigint as key,
         (b.low + floor(random() * (b.high - b.low + 1)))::bigint as seq
    from bounds b, generate_series(1, ${drawsMax})
), drawn as materialized (
  select k.seq, k.key from draw d cross join lateral (
    select h.seq, h.key from ${s}.outbox_shelf h
     where h.destination = d.destination and h.key >= d.key order by h.key, h.destination, h.seq limit 1) k
  union all
  select k.seq, k.key from draw d cross join lateral (
    select h.seq, h.key from ${s}.outbox_shelf h
     where h.destination = d.destination and h.seq >= d.seq order by h.seq limit 1) k
), chosen as materialized (
  select f.seq from (
    select distinct coalesce((select h.seq from ${s}.outbox_shelf h
                               where h.key = d.key and h.destination = (select destination from gate)
                               order by h.seq limit 1), d.seq) as seq
      from drawn d) f
   order by random() limit (select count from allowed)
)`,
  ),
);

/** Keys, and as many seqs, that are drawn for a trial. */
const drawsMax = 5;

export interface UnshelveRequest {
  destination: string;
  /** Events per second at most, over all relays. */
  rateMax: number;
  /** Events at once at most. */
  countMax: number;
  /**
   * Takes events of random keys instead of the oldest: for a destination that is not known to take events. Otherwise an
   * event that fails for a reason of its own would be the first of every trial, and nothing would get past it.
   */
  isTrial?: boolean;
}

/**
 * Puts events that waited for a destination back into the queue, oldest first, at a bounded rate. None while the
 * destination is down or paused, or another relay is doing it. Returns how many.
 */
export async function unshelve(db: Executor, schema: string, request: UnshelveRequest): Promise<number> {
  const { destination, rateMax, countMax, isTrial = false } = request;
  const { rows } = await db.query((isTrial ? unshelveTrialSql : unshelveSql)(schema), [
    destination,
    rateMax,
    countMax,
    schema,
  ]);
  return (rows[0] as { count: number }).count;
}
