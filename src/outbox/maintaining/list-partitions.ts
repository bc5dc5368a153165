import type { Executor } from '../../database/executor.ts';
import { perSchema } from '../../database/identifier.ts';
import type { PartitionChoice } from '../../database/migrate-options.ts';
import { unqueuedMax } from '../examining/next-part.ts';
import { optional, readJson, toDate } from '../read-json.ts';
import { seqsOf } from './partition.ts';

/** Counts stop here: a partition may contain the events of a month. */
const cap = 10_000;

// Unqueued events are searched where the last attempt to drop the partition found some, with the step of check_partition; otherwise
// only in its first part (25 ms at most), so that listing a year of partitions stays cheap.
const checkSeqs = 100_000;
const firstSeqs = 20_000;

const { first, beyond } = seqsOf('p.number');

// The event count is derived from the lowest and the highest seq, two index lookups. Rolled back transactions leave gaps, so
// there may be fewer. Attached means both tables, of the log and the record.
const listPartitionsSql = perSchema(
  (s) => `
select json_build_object(
  'number', p.number, 'openedAt', p.opened_at, 'closedAt', p.closed_at,
  'attached', coalesce(t.tables = 2, false), 'bytes', coalesce(t.bytes, 0),
  'events', coalesce((select max(e.seq) - min(e.seq) + 1 from ${s}.outbox_events e
                       where e.seq >= ${first} and e.seq < ${beyond}), 0),
  'undelivered', (select count(*) from (
     (select from ${s}.outbox_queue q where q.seq >= ${first} and q.seq < ${beyond} limit ${cap})
     union all
     (select from ${s}.outbox_shelf h where h.seq >= ${first} and h.seq < ${beyond} limit ${cap})
     limit ${cap}) u),
  'unqueued', case when o.seq is null then 0 else (
     select count(*) from ${s}.find_unqueued(o.seq, least(o.seq + o.seqs, ${beyond}), ${unqueuedMax})) end,
  'deadLetters', (select count(*) from (
     select from ${s}.outbox_dead_letters d
      where d.seq >= ${first} and d.seq < ${beyond} and d.discarded_at is null limit ${cap}) d)
)::text as json
  from ${s}.outbox_partitions p
  left join lateral (
    select count(*) as tables, sum(pg_total_relation_size(c.oid)) as bytes
      from pg_inherits i join pg_class c on c.oid = i.inhrelid
     where (i.inhparent = to_regclass(format('%I.outbox_events', $1::text)) and c.relname = 'outbox_events_p' || p.number)
        or (i.inhparent = to_regclass(format('%I.outbox_deliveries', $1::text))
            and c.relname = 'outbox_deliveries_p' || p.number)
  ) t on true
  left join lateral (
    select min(e.seq) as seq, case when p.checked_to is null then ${firstSeqs} else ${checkSeqs} end as seqs
      from ${s}.outbox_events e
     where p.opened_at is not null and e.seq >= greatest(${first}, p.checked_to) and e.seq < ${beyond}
  ) o on true
 where p.dropped_at is null
 order by p.number`,
);

// From the catalogue, which needs no privilege on the table itself.
const partitioningSql = perSchema(
  (s) => `
select json_build_object(
  'unit', coalesce((select value from ${s}.outbox_settings where name = 'partitions'), 'none'),
  'bytes', (select sum(coalesce(pg_total_relation_size(i.inhrelid), pg_total_relation_size(c.oid)))
              from pg_class c left join pg_inherits i on i.inhparent = c.oid
             where c.oid in (to_regclass(format('%I.outbox_events', $1::text)),
                             to_regclass(format('%I.outbox_deliveries', $1::text)))),
  'default', (select json_build_object(
                'bytes', pg_total_relation_size(c.oid),
                'events', case when pg_relation_size(c.oid) = 0 then 0
                               when c.reltuples >= 0 and c.relpages > 0 then round(c.reltuples) end)
                from pg_class c where c.oid = to_regclass(format('%I.outbox_events_default', $1::text)))
)::text as json`,
);

/**
 * - `open`: new events go into it;
 * - `closed`: no more events are added, and retention counts from when it was closed;
 * - `spare`: created ahead, nothing was ever in it;
 * - `detached`: an operator detached it; its events are no longer found.
 */
export type PartitionState = 'open' | 'closed' | 'spare' | 'detached';

/** One partition: a piece of the log with its piece of the delivery record. */
export interface PartitionInfo {
  number: number;
  state: PartitionState;
  openedAt?: Date;
  closedAt?: Date;
  /** Events in the log; fewer if transactions were rolled back. */
  events: number;
  /** Tables and indexes. */
  bytes: number;
  /** Events that prevent its drop: in the queue, waiting for a destination, or unqueued. Counted up to 10,000. */
  undelivered: number;
  /**
   * Of these, events that were never queued: `requeueUnqueued()` queues them. A lower bound up to 1,000: the search covers the
   * part where an attempt to drop the partition found them, or else only its first 20,000 seqs.
   */
  unqueued: number;
  /** Unresolved dead letters; they survive a drop. Counted up to 10,000. */
  deadLetters: number;
}

/** How the log is partitioned. */
export interface Partitioning {
  /** The unit of a partition; `none`: the log is one table. */
  unit: PartitionChoice;
  /** Lowest number first, which is oldest first. */
  partitions: PartitionInfo[];
  /** The default partition. `events` is an estimate by the last ANALYZE, `null` if there was none. */
  default?: { bytes: number; events: number | null };
  /** Log and record, with their indexes. */
  bytes: number;
}

interface PartitionRow extends Omit<PartitionInfo, 'state' | 'openedAt' | 'closedAt'> {
  openedAt: string | null;
  closedAt: string | null;
  attached: boolean;
}

/** Every partition that was not dropped, and how the log is partitioned. */
export async function listPartitions(db: Executor, schema: string): Promise<Partitioning> {
  const [partitioning] = await readJson<Omit<Partitioning, 'default'> & { default: Partitioning['default'] | null }>(
    db,
    partitioningSql(schema),
    [schema],
  );
  const rows = await readJson<PartitionRow>(db, listPartitionsSql(schema), [schema]);
  const { unit, bytes, default: rest } = partitioning as NonNullable<typeof partitioning>;
  return { unit, bytes, ...(rest && { default: rest }), partitions: rows.map(toPartition) };
}

function toPartition({ openedAt, closedAt, attached, number, undelivered, ...same }: PartitionRow): PartitionInfo {
  const state = !attached ? 'detached' : closedAt !== null ? 'closed' : openedAt !== null ? 'open' : 'spare';
  return {
    number,
    state,
    ...optional('openedAt', openedAt, toDate),
    ...optional('closedAt', closedAt, toDate),
    ...same,
    undelivered: Math.min(cap, undelivered + same.unqueued),
  };
}
