import type { Executor } from '../database/executor.ts';
import { perSchema } from '../database/identifier.ts';

// One relay at a time, for all destinations: an event may wait for two of them, and is taken from the shelf for both.
// The lowest seqs first, and in one transaction with the queue, so that a claim sees an event in one place or the
// other, never in both or in neither.
const unshelveSql = perSchema(
  (s) => `
with gate as materialized (
  select c.destination, c.unshelved_at from ${s}.outbox_controls c
   where c.destination = $1::text and c.state = 'closed' and c.paused_at is null
     and pg_try_advisory_xact_lock(hashtextextended('postcommit.unshelve', hashtextextended($4::text, 0)))
     for update
), allowed as materialized (
  -- Not below zero, which LIMIT refuses: after the clock was set back nothing is taken until \`reanchor\` was run.
  select greatest(0, least($3::integer, floor($2::double precision * least(1, coalesce(
           extract(epoch from clock_timestamp() - gate.unshelved_at)::double precision, 0.25)))))::integer as count
    from gate
), chosen as materialized (
  select h.seq from ${s}.outbox_shelf h
   where h.destination = (select destination from gate) order by h.seq limit (select count from allowed)
), gone as (
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
  update ${s}.outbox_controls c
     set unshelved_at = greatest(coalesce(c.unshelved_at, clock_timestamp() - interval '250 milliseconds'),
                                 clock_timestamp() - interval '1 second')
                        + (select count(*) from chosen) / $2::double precision * interval '1 second'
   where c.destination = (select destination from gate) and exists (select from chosen)
)
select count(*)::integer as count from chosen`,
);

export interface UnshelveRequest {
  destination: string;
  /** Events per second at most, over all relays. */
  rateMax: number;
  /** Events at once at most. */
  countMax: number;
}

/**
 * Puts events that waited for a destination back into the queue, oldest first, at a bounded rate. None while the
 * destination is away or paused, or another relay is at it. Answers how many.
 */
export async function unshelve(db: Executor, schema: string, request: UnshelveRequest): Promise<number> {
  const { destination, rateMax, countMax } = request;
  const { rows } = await db.query(unshelveSql(schema), [destination, rateMax, countMax, schema]);
  return (rows[0] as { count: number }).count;
}
