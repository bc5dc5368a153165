import type { Executor } from '../../database/executor.ts';
import { perSchema } from '../../database/identifier.ts';
import { covers } from '../maintaining/partition.ts';
import { optional, readJson, toDate } from '../read-json.ts';
import type { EventConditions } from './conditions.ts';
import { Conditions, conditionsGoHere, whereEvent } from './conditions.ts';

/** The status of an event. The view `outbox_status` defines it. */
export type EventStatus = 'PENDING' | 'PROCESSING' | 'SENT' | 'FAILED';

export const eventStatuses: readonly EventStatus[] = ['PENDING', 'PROCESSING', 'SENT', 'FAILED'];

export type ListOrder = 'newest' | 'oldest';

/**
 * Where the events of a status are found. The view computes the status of each row of the log; selecting all PENDING events
 * from it would visit every delivered event. So each status is driven by the smallest table that has all of its events, in
 * order of that table's primary key, and stops when the page is full; the view is queried only for the page. An event that is
 * in no table, because a user deleted its queue row, has the status PENDING but is listed only without a status filter.
 */
interface Source {
  /** Tables and conditions. `log` joins the log, `e`, to the driving table. */
  from: (s: string, direction: Direction, log: (seq: string) => string) => string;
  /** The driving table, whose seq orders the page. `q` stands for the queue and for the shelf. */
  driver: 'e' | 'q' | 'd';
}
type Direction = 'asc' | 'desc';

const isHeldByRelay = (s: string) =>
  `exists (select from ${s}.outbox_relays r where r.token = q.claimed_by and r.ended_at is null)`;
const isDead = (s: string) => `exists (select from ${s}.outbox_dead_letters d where d.seq = q.seq)`;

const sources: Record<EventStatus | 'ANY', Source> = {
  ANY: { from: (s) => `${s}.outbox_events e where true ${conditionsGoHere}`, driver: 'e' },
  PENDING: { from: waitingEvents, driver: 'q' },
  PROCESSING: {
    from: (s, _, log) => `${s}.outbox_queue q ${log('q.seq')}
   where q.claimed_by is not null and ${isHeldByRelay(s)} and not ${isDead(s)} ${conditionsGoHere}`,
    driver: 'q',
  },
  SENT: { from: deliveredEvents, driver: 'e' },
  FAILED: {
    from: (s, _, log) => `${s}.outbox_dead_letters d ${log('d.seq')} where true ${conditionsGoHere}`,
    driver: 'd',
  },
};

/**
 * The events, `q`, that are PENDING: in the queue, and on the shelf. Each branch is read in order and stops at the page
 * limit, then both are merged. An event that waits for several destinations has as many rows on the shelf. For each row of
 * the page a lookup checks that it is not in the queue, as in `deliveredEvents`; the queue is never read as a whole.
 */
function waitingEvents(s: string, direction: Direction, log: (seq: string) => string): string {
  const page = `${conditionsGoHere} order by q.seq ${direction} limit $1::text::integer`;
  return `(
    (select q.seq from ${s}.outbox_queue q ${log('q.seq')}
      where not ${isHeldByRelay(s)} and not ${isDead(s)} ${page})
    union all
    (select distinct q.seq from ${s}.outbox_shelf q ${log('q.seq')}
      where coalesce((select false from ${s}.outbox_queue p where p.seq = q.seq), true) and not ${isDead(s)} ${page})
  ) q`;
}

/**
 * The events of the log, `e`, that are SENT: nothing is left to do, and there is a delivery record.
 *
 * Written so that the planner can only walk along an index of the log and look up each event, whatever its estimates. With
 * NOT EXISTS it expects from old statistics of the queue that hardly any event remains, and with EXISTS that one multirange
 * in a thousand matches; either way it prepares to read the whole log for one page. CASE keeps it from searching the record
 * first, which costs the most: behind a backlog of 900,000 events 12 s instead of 1.4 s. A subquery with OFFSET 0 does so
 * too, but then the planner ignores the page limit and sorts all partitions of the log.
 */
export function deliveredEvents(s: string): string {
  return `${s}.outbox_events e where case
     when coalesce((select false from ${s}.outbox_queue q where q.seq = e.seq), true)
      and coalesce((select false from ${s}.outbox_dead_letters d where d.seq = e.seq), true)
      and coalesce((select false from ${s}.outbox_shelf h where h.seq = e.seq limit 1), true)
     then coalesce((select true from ${s}.outbox_deliveries x where ${covers('x', 'e.seq')} limit 1), false)
     else false end ${conditionsGoHere}`;
}

/**
 * With conditions on the event the planner may choose where to start: a rare type is found faster by its index than in a long
 * queue. Without conditions it may not, because it would walk along the log to where the driving table's rows begin.
 */
const joinLog = (s: string, seq: string, hasConditions: boolean) =>
  hasConditions
    ? `join ${s}.outbox_events e on e.seq = ${seq}`
    : `cross join lateral (select from ${s}.outbox_events e where e.seq = ${seq} limit 1) e`;

/** The row `v` of the view as JSON. */
export const summaryOf = (v: string) => `json_build_object(
  'id', ${v}.id, 'seq', ${v}.seq::text, 'type', ${v}.event_type, 'aggregateType', ${v}.aggregate_type,
  'aggregateId', ${v}.aggregate_id, 'status', ${v}.status, 'attempts', ${v}.retry_count + (${v}.status = 'SENT')::integer,
  'createdAt', ${v}.created_at, 'availableAt', ${v}.next_retry_at, 'deliveredAt', ${v}.published_at, 'lastError', ${v}.last_error
)`;

// LIMIT 1 keeps the view from being merged into the plan of the page: it is looked up for each row of the page, never
// scanned.
const pageSql = (source: Source, direction: Direction, hasConditions: boolean) =>
  perSchema(
    (s) => `
with page as materialized (
  select ${source.driver}.seq from ${source.from(s, direction, (seq) => joinLog(s, seq, hasConditions))}
   order by ${source.driver}.seq ${direction} limit $1::text::integer
)
select ${summaryOf('v')}::text as json
  from page p cross join lateral (
    select w.id, w.seq, w.event_type, w.aggregate_type, w.aggregate_id, w.status, w.retry_count, w.created_at,
           w.next_retry_at, w.published_at, w.last_error
      from ${s}.outbox_status w where w.seq = p.seq limit 1
  ) v
 order by p.seq ${direction}`,
  );

const statements = new Map<string, (schema: string) => string>();
function statementOf(
  status: EventStatus | 'ANY',
  order: ListOrder,
  hasConditions: boolean,
): (schema: string) => string {
  const name = `${status} ${order} ${hasConditions}`;
  const statement =
    statements.get(name) ?? pageSql(sources[status], order === 'newest' ? 'desc' : 'asc', hasConditions);
  statements.set(name, statement);
  return statement;
}

export interface ListRequest {
  status?: EventStatus | undefined;
  events: EventConditions;
  /** Bounds from a time range: see `findSeqRange`. */
  seqFrom?: string | undefined;
  seqBefore?: string | undefined;
  order: ListOrder;
  /** Only events after this seq, in that order. */
  after?: string | undefined;
  limit: number;
}

/** An event in a list. `find` returns the rest. */
export interface EventSummary {
  id: string;
  /** Position in the log, as text: it may exceed a number. */
  seq: string;
  type: string;
  aggregate: { type: string; id: string };
  status: EventStatus;
  /** Attempts since it was last queued: failed ones, and the successful one of a delivered event. */
  attempts: number;
  createdAt: Date;
  /** Not delivered before this time: delayed, in backoff, or behind such an event of its key. */
  availableAt?: Date;
  /** The last delivery, if there was one. */
  deliveredAt?: Date;
  /** The last error, if there was one. */
  lastError?: string;
}

/** The statement and its values: exported separately from `list`, so that a test can run EXPLAIN. */
export function listStatement(schema: string, request: ListRequest): { text: string; values: string[] } {
  const { status = 'ANY', events, order, after } = request;
  const { driver } = sources[status];
  const hasConditions = Object.values(events).some((value) => value !== undefined);
  const conditions = whereEvent(new Conditions([String(request.limit)]), events);
  // The planner knows that the two seqs are equal, but does not transfer inequalities between them.
  for (const table of hasConditions ? new Set([driver, 'e']) : [driver]) {
    conditions
      .where(request.seqFrom, (v) => `${table}.seq >= ${v}::bigint`)
      .where(request.seqBefore, (v) => `${table}.seq < ${v}::bigint`)
      .where(after, (v) => `${table}.seq ${order === 'newest' ? '<' : '>'} ${v}::bigint`);
  }
  return { text: conditions.into(statementOf(status, order, hasConditions)(schema)), values: conditions.values };
}

export interface SummaryRow
  extends Omit<EventSummary, 'aggregate' | 'createdAt' | 'availableAt' | 'deliveredAt' | 'lastError'> {
  aggregateType: string;
  aggregateId: string;
  createdAt: string;
  availableAt: string | null;
  deliveredAt: string | null;
  lastError: string | null;
}

export function toSummary(row: SummaryRow): EventSummary {
  return {
    id: row.id,
    seq: row.seq,
    type: row.type,
    aggregate: { type: row.aggregateType, id: row.aggregateId },
    status: row.status,
    attempts: row.attempts,
    createdAt: toDate(row.createdAt),
    ...optional('availableAt', row.availableAt, toDate),
    ...optional('deliveredAt', row.deliveredAt, toDate),
    ...optional('lastError', row.lastError, (error) => error),
  };
}

/** One page of events, in order of seq. */
export async function list(db: Executor, schema: string, request: ListRequest): Promise<EventSummary[]> {
  const { text, values } = listStatement(schema, request);
  return (await readJson<SummaryRow>(db, text, values)).map(toSummary);
}
