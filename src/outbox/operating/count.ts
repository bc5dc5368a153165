import type { Executor } from '../../database/executor.ts';
import { perSchema } from '../../database/identifier.ts';
import { examineUnqueued } from '../examining/examine-unqueued.ts';
import { readJson } from '../read-json.ts';

// Every count reads at most $1 + 1 rows. If there are more, the size of the table is estimated as the planner does it: rows
// per page as of the last ANALYZE, times the current number of pages. A partitioned log is the sum of its partitions; one
// that was never analysed is assumed to be as dense as the others.
const countSql = perSchema(
  (s) => `
with size as materialized (
  select t.relname, (
           sum(c.reltuples) filter (where c.relpages > 0 and c.reltuples > 0)
           / sum(c.relpages) filter (where c.relpages > 0 and c.reltuples > 0)
           * sum(pg_relation_size(c.oid) / current_setting('block_size')::integer)
         )::bigint as estimate
    from pg_class t join pg_namespace n on n.oid = t.relnamespace
    left join pg_inherits i on i.inhparent = t.oid
    join pg_class c on c.oid = coalesce(i.inhrelid, t.oid)
   where n.nspname = $2::text and t.relname in ('outbox_events', 'outbox_queue', 'outbox_shelf', 'outbox_dead_letters')
   group by t.relname
), alive as materialized (
  select token from ${s}.outbox_relays where ended_at is null
), queue as materialized (
  select count(*) as seen, count(*) filter (where blocking) as blocking,
         count(*) filter (where not blocking and claimed_by in (select token from alive)) as processing
    from (select blocking, claimed_by from ${s}.outbox_queue order by seq limit $1::text::integer + 1) q
), waiting as materialized (
  select count(*) as seen, count(*) filter (where not blocking) as waiting
    from (select w.blocking from ${s}.queue_names() as n(queue) cross join lateral (
            select q.blocking from ${s}.outbox_queue q where q.queue = n.queue and q.available_at > now()
             order by q.available_at limit $1::text::integer + 1) w
           limit $1::text::integer + 1) q
), shelf as materialized (
  -- One row for each destination that an event waits for.
  select count(*) as seen, count(distinct seq) as events
    from (select seq from ${s}.outbox_shelf order by seq limit $1::text::integer + 1) h
), dead as materialized (
  select count(*) as seen, count(*) filter (where discarded_at is null) as failed,
         count(*) filter (where not blocking) as settled, count(distinct key) filter (where blocking) as blocked
    from (select discarded_at, blocking, key from ${s}.outbox_dead_letters order by seq limit $1::text::integer + 1) d
), log as materialized (
  -- Not counted at all if the estimate is over the limit.
  select case when (select estimate from size where relname = 'outbox_events') > $1::text::integer
           then $1::text::integer + 1
           else (select count(*) from (select from ${s}.outbox_events order by seq limit $1::text::integer + 1) e)
         end as seen
), oldest as materialized (
  -- The oldest due event that no relay has claimed. Shelved events count: otherwise an outage would make the figure disappear
  -- from monitoring.
  select least(
    (select min((select e.created_at from ${s}.outbox_events e where e.seq = ${s}.oldest_ready(n.queue)))
       from ${s}.queue_names() as n(queue)),
    (select min(f.available_at) from ${s}.queue_names() as n(queue) cross join lateral (
       select q.available_at from ${s}.outbox_queue q
        where q.queue = n.queue and q.available_at <= now()
          and (q.claimed_by is null or q.claimed_by not in (select token from alive))
        order by q.available_at limit 1
     ) f),
    (select greatest(e.created_at, e.available_at) from (
       select h.seq from ${s}.outbox_shelf h order by h.seq limit 1
     ) f join ${s}.outbox_events e on e.seq = f.seq)
  ) as due_at
)
select json_build_object(
  'queue', queue.seen, 'blocking', queue.blocking, 'processing', queue.processing,
  'waitingSeen', waiting.seen, 'waiting', waiting.waiting, 'shelfRows', shelf.seen, 'shelved', shelf.events, 'blocked', dead.blocked,
  'dead', dead.seen, 'failed', dead.failed, 'deadSettled', dead.settled, 'log', log.seen,
  -- GREATEST ignores nulls, and nothing due is not the same as due for 0 ms.
  'oldestMs', case when oldest.due_at is not null
                   then greatest(0, floor(extract(epoch from now() - oldest.due_at) * 1000)) end,
  'estimates', (select json_object_agg(relname, estimate) from size)
)::text as json
  from queue, waiting, shelf, dead, log, oldest`,
);

/** Row counts. `exact` marks the figures that were counted; the others are estimates or lower bounds. */
export interface RowCounts {
  /** Undelivered events that no relay has claimed: due, waiting and shelved ones. */
  pending: number;
  /** Events that a relay has claimed. */
  processing: number;
  /** Pending events that are not due: delayed, in backoff, or behind such an event. */
  waiting: number;
  /** Pending events that wait only for destinations that are down or paused. */
  shelved: number;
  /** Aggregates (or keys) that a dead letter blocks until it is retried or discarded. */
  blocked: number;
  /** Dead letters that were not discarded. */
  failed: number;
  /** Events in the log that are neither queued, shelved nor dead: delivered, unless they are unqueued. */
  delivered: number;
  /**
   * How long the oldest due event has been due; `null` if none is due. Events that wait for a destination that is down or
   * paused count as due, so an outage shows here.
   */
  oldestPendingMs: number | null;
  exact: {
    pending: boolean;
    processing: boolean;
    waiting: boolean;
    shelved: boolean;
    blocked: boolean;
    failed: boolean;
    delivered: boolean;
  };
}

/** Counts by status. `exact` marks the figures that were counted; the others are estimates or lower bounds. */
export interface OutboxCounts extends RowCounts {
  /** Events delivered and still in the log. */
  delivered: number;
  /**
   * Events in the log that were never queued nor delivered: no relay delivers them until `requeueUnqueued()`. In a log of more
   * than 400,000 seqs only a sample is searched, and the figure is a lower bound.
   */
  unqueued: number;
  exact: RowCounts['exact'] & { unqueued: boolean };
}

/** Unqueued events of an earlier count. */
export interface KnownUnqueued {
  unqueued: number;
  exact: boolean;
}

interface Seen {
  queue: number;
  blocking: number;
  processing: number;
  waitingSeen: number;
  waiting: number;
  shelfRows: number;
  shelved: number;
  blocked: number;
  dead: number;
  failed: number;
  deadSettled: number;
  log: number;
  oldestMs: number | null;
  estimates: Record<'outbox_events' | 'outbox_queue' | 'outbox_shelf' | 'outbox_dead_letters', number | null>;
}

/** The same with unqueued events distinguished from delivered events. The search for them reads up to 20 parts of the log. */
export async function countAll(db: Executor, schema: string, known?: KnownUnqueued): Promise<OutboxCounts> {
  const { delivered, exact, ...counts } = await count(db, schema);
  const { unqueued, exact: exactUnqueued } = known ?? (await examineUnqueued(db, schema));
  return {
    ...counts,
    delivered: Math.max(0, delivered - unqueued),
    unqueued,
    exact: { ...exact, delivered: exact.delivered && exactUnqueued, unqueued: exactUnqueued },
  };
}

/** Counts up to the cap and estimates the rest, so that the cost is the same for ten rows and ten million. */
export async function count(db: Executor, schema: string, cap = 100_000): Promise<RowCounts> {
  const [row] = await readJson<Seen>(db, countSql(schema), [String(cap), schema]);
  return toCounts(row as Seen, cap);
}

function toCounts(seen: Seen, cap: number): RowCounts {
  /** The size of a table of which `counted` rows were read. Above the cap it is at least that, whatever the estimate. */
  const size = (counted: number, estimate: number | null) =>
    counted <= cap ? counted : Math.max(counted, estimate ?? 0);
  const queue = size(seen.queue, seen.estimates.outbox_queue);
  const dead = size(seen.dead, seen.estimates.outbox_dead_letters);
  const log = size(seen.log, seen.estimates.outbox_events);
  // Extrapolates: the fraction among the rows that were read applies to all dead letters, and likewise for the shelf.
  const ofDead = (part: number) => (seen.dead === 0 ? 0 : Math.round((part / seen.dead) * dead));
  const shelfRows = size(seen.shelfRows, seen.estimates.outbox_shelf);
  const shelved = seen.shelfRows === 0 ? 0 : Math.round((seen.shelved / seen.shelfRows) * shelfRows);
  const whole = {
    queue: seen.queue <= cap,
    shelf: seen.shelfRows <= cap,
    dead: seen.dead <= cap,
    log: seen.log <= cap,
  };
  return {
    pending: queue - seen.blocking - seen.processing + shelved,
    processing: seen.processing,
    waiting: seen.waiting,
    shelved,
    blocked: seen.blocked,
    failed: ofDead(seen.failed),
    // A blocking dead letter is in the queue too.
    delivered: Math.max(0, log - queue - shelved - ofDead(seen.deadSettled)),
    oldestPendingMs: seen.oldestMs,
    exact: {
      pending: whole.queue && whole.shelf,
      processing: whole.queue,
      waiting: seen.waitingSeen <= cap,
      shelved: whole.shelf,
      blocked: whole.dead,
      failed: whole.dead,
      delivered: whole.queue && whole.shelf && whole.dead && whole.log,
    },
  };
}
