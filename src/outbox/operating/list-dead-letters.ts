import type { Executor } from '../../database/executor.ts';
import { perSchema } from '../../database/identifier.ts';
import { optional, readJson, toDate } from '../read-json.ts';
import type { DeadLetterConditions } from './conditions.ts';
import { Conditions, conditionsGoHere, whereDeadLetter } from './conditions.ts';
import type { DeadLetterFacts } from './find.ts';

// LIMIT 1 makes the planner look up each event, instead of walking along the log to where its dead letters begin.
const listDeadLettersSql = perSchema(
  (s) => `
select json_build_object(
  'id', e.id, 'seq', d.seq::text, 'type', e.event_type, 'aggregateType', e.aggregate_type,
  'aggregateId', e.aggregate_id, 'createdAt', e.created_at, 'at', d.dead_at, 'reason', d.reason,
  'attempts', d.attempts, 'error', d.error, 'done', coalesce(d.done, '{}'), 'blocking', d.blocking,
  'discardedAt', d.discarded_at
)::text as json
  from ${s}.outbox_dead_letters d
  left join lateral (select l.* from ${s}.outbox_events l where l.seq = d.seq limit 1) e on true
 where true ${conditionsGoHere}
 order by d.seq desc limit $1::text::integer`,
);

/** An event that failed for good. Fields from the log are `null` once the event was deleted from it. */
export interface DeadLetter extends DeadLetterFacts {
  id: string | null;
  /** Position in the log, as text: it may exceed a number. Identifies the event even if its id is lost. */
  seq: string;
  type: string | null;
  aggregate: { type: string; id: string } | null;
  createdAt: Date | null;
  /** Targets that have the event nevertheless. */
  done: string[];
}

interface DeadLetterRow extends Omit<DeadLetter, 'aggregate' | 'createdAt' | 'at' | 'discardedAt'> {
  aggregateType: string | null;
  aggregateId: string | null;
  createdAt: string | null;
  at: string;
  discardedAt: string | null;
}

export interface ListDeadLettersRequest {
  letters: DeadLetterConditions;
  /** Only those with a lower seq. */
  after?: string | undefined;
  limit: number;
}

/** The statement and its values: exported separately, so that a test can run EXPLAIN. */
export function listDeadLettersStatement(
  schema: string,
  { letters, after, limit }: ListDeadLettersRequest,
): { text: string; values: string[] } {
  const conditions = whereDeadLetter(new Conditions([String(limit)]), letters).where(
    after,
    (v) => `d.seq < ${v}::bigint`,
  );
  return { text: conditions.into(listDeadLettersSql(schema)), values: conditions.values };
}

/** One page of dead letters, newest event first. */
export async function listDeadLetters(
  db: Executor,
  schema: string,
  request: ListDeadLettersRequest,
): Promise<DeadLetter[]> {
  const { text, values } = listDeadLettersStatement(schema, request);
  const rows = await readJson<DeadLetterRow>(db, text, values);
  return rows.map(({ id, seq, type, aggregateType, aggregateId, createdAt, at, discardedAt, ...same }) => ({
    id,
    seq,
    type,
    aggregate: aggregateType === null || aggregateId === null ? null : { type: aggregateType, id: aggregateId },
    createdAt: createdAt === null ? null : toDate(createdAt),
    at: toDate(at),
    ...same,
    ...optional('discardedAt', discardedAt, toDate),
  }));
}
