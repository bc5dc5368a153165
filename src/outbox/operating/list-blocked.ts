import type { Executor } from '../../database/executor.ts';
import { perSchema } from '../../database/identifier.ts';
import { readJson, toDate } from '../read-json.ts';

/** Events behind a dead letter are counted up to this number. */
const waitingMax = 1_000;

// LIMIT 1 makes the planner look up each event, as in list-dead-letters.ts.
const listBlockedSql = perSchema(
  (s) => `
select json_build_object(
  'seq', d.seq::text, 'id', e.id, 'type', e.event_type, 'aggregateType', e.aggregate_type, 'aggregateId', e.aggregate_id,
  'key', coalesce(e.ordering_key, e.aggregate_type || ':' || e.aggregate_id), 'since', d.dead_at, 'error', left(d.error, 2000),
  'waiting', (select count(*) from (
     select from ${s}.outbox_queue q where q.key = d.key and q.seq > d.seq order by q.seq limit ${waitingMax}) q)
)::text as json
  from ${s}.outbox_dead_letters d
  left join lateral (select l.* from ${s}.outbox_events l where l.seq = d.seq limit 1) e on true
 where d.blocking order by d.seq limit $1::text::integer`,
);

/** An aggregate, or key, whose events wait until a dead letter is retried or discarded. */
export interface BlockedAggregate {
  /** The dead letter that blocks it. Fields of the log are `null` once the event was deleted from it. */
  seq: string;
  id: string | null;
  type: string | null;
  aggregate: { type: string; id: string } | null;
  /** What the events are ordered by. */
  key: string | null;
  since: Date;
  /** The last error, up to 2,000 characters. */
  error: string;
  /** Events that wait behind it, counted up to 1,000. */
  waiting: number;
}

interface BlockedRow extends Omit<BlockedAggregate, 'aggregate' | 'since'> {
  aggregateType: string | null;
  aggregateId: string | null;
  since: string;
}

/** The blocked aggregates, oldest dead letter first. */
export async function listBlocked(db: Executor, schema: string, limit: number): Promise<BlockedAggregate[]> {
  const rows = await readJson<BlockedRow>(db, listBlockedSql(schema), [String(limit)]);
  return rows.map(({ aggregateType, aggregateId, since, ...same }) => ({
    ...same,
    aggregate: aggregateType === null || aggregateId === null ? null : { type: aggregateType, id: aggregateId },
    since: toDate(since),
  }));
}
