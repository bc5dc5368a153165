import type { Executor } from '../../database/executor.ts';
import { perSchema } from '../../database/identifier.ts';
import { readJson, toDate } from '../read-json.ts';

/** The reports of an event's handlers as JSON objects. A row that its relay no longer owns is left over. */
export const progressOf = (p: string) =>
  `json_build_object('handler', ${p}.handler, 'attempt', ${p}.attempt, 'fraction', ${p}.fraction, 'note', ${p}.note,
                     'since', ${p}.since, 'reportedAt', ${p}.reported_at)`;

const listProgressSql = perSchema(
  (s) => `
select json_build_object(
  'id', e.id, 'seq', e.seq::text, 'type', e.event_type, 'aggregateType', e.aggregate_type, 'aggregateId', e.aggregate_id,
  'relay', r.name, 'progress', ${progressOf('p')}
)::text as json
  from ${s}.outbox_progress p
  join ${s}.outbox_queue q on q.seq = p.seq and q.claimed_by = p.relay
  join ${s}.outbox_relays r on r.token = p.relay and r.ended_at is null
  join ${s}.outbox_events e on e.seq = p.seq
 order by p.since, p.seq, p.handler limit $1::text::integer`,
);

/** What a handler in flight reported last, with `ctx.progress()`. */
export interface HandlerProgress {
  handler: string;
  /** 1 for the first try. */
  attempt: number;
  /** From 0 to 1. */
  fraction: number;
  note: string | null;
  /** When its first report was written. */
  since: Date;
  reportedAt: Date;
}

/** A handler in flight that reports progress, with its event and its relay. */
export interface RunningHandler extends HandlerProgress {
  id: string;
  seq: string;
  type: string;
  aggregate: { type: string; id: string };
  /** The relay's name. */
  relay: string;
}

export type ProgressRow = Omit<HandlerProgress, 'since' | 'reportedAt'> & { since: string; reportedAt: string };

interface RunningRow {
  id: string;
  seq: string;
  type: string;
  aggregateType: string;
  aggregateId: string;
  relay: string;
  progress: ProgressRow;
}

export function toProgress(row: ProgressRow): HandlerProgress {
  return { ...row, since: toDate(row.since), reportedAt: toDate(row.reportedAt) };
}

/** The handlers in flight that report progress, longest first. */
export async function listProgress(db: Executor, schema: string, limit: number): Promise<RunningHandler[]> {
  const rows = await readJson<RunningRow>(db, listProgressSql(schema), [String(limit)]);
  return rows.map(({ aggregateType, aggregateId, progress, ...event }) => ({
    ...event,
    aggregate: { type: aggregateType, id: aggregateId },
    ...toProgress(progress),
  }));
}
