import type { Executor } from '../../database/executor.ts';
import { perSchema } from '../../database/identifier.ts';
import { readJson } from '../read-json.ts';
import { Conditions, conditionsGoHere, whereEvent } from './conditions.ts';
import type { EventSummary, ListRequest, SummaryRow } from './list.ts';
import { summaryOf, toSummary } from './list.ts';

/** Where the text of a search condition goes: it is checked only for the rows of the window. */
const searchGoesHere = '/* search */';

// No index covers headers and error texts: one on headers would cost every emit. So a statement reads a window of a bounded
// number of rows, in order of seq, and returns where it ended: the next page goes on from there. For an error text the window is
// of failed attempts, which few events have; otherwise of the log.
const windows = {
  log: (s: string, direction: string) =>
    `select e.seq from ${s}.outbox_events e where true ${conditionsGoHere} order by e.seq ${direction} limit $2::text::integer`,
  failures: (s: string, direction: string) =>
    `select f.seq, f.error from ${s}.outbox_failures f where true ${conditionsGoHere} order by f.seq ${direction}, f.attempt ${direction} limit $2::text::integer`,
};

const searchSql = (driver: keyof typeof windows, direction: 'asc' | 'desc') =>
  perSchema(
    (s) => `
with near as materialized (${windows[driver](s, direction)}
), found as materialized (
  select distinct n.seq from near n cross join lateral (
    select l.* from ${s}.outbox_events l where l.seq = n.seq limit 1) e
   where true ${searchGoesHere} order by n.seq ${direction} limit $1::text::integer
), page as materialized (
  select v.* from found f cross join lateral (
    select w.id, w.seq, w.event_type, w.aggregate_type, w.aggregate_id, w.status, w.retry_count, w.created_at,
           w.next_retry_at, w.published_at, w.last_error
      from ${s}.outbox_status w where w.seq = f.seq limit 1) v
)
select json_build_object(
  'events', coalesce((select json_agg(${summaryOf('v')} order by v.seq ${direction}) from page v), '[]'),
  'found', (select count(*) from found), 'read', (select count(*) from near),
  'first', (select min(seq)::text from near), 'last', (select max(seq)::text from near)
)::text as json`,
  );
const statements = {
  log: { newest: searchSql('log', 'desc'), oldest: searchSql('log', 'asc') },
  failures: { newest: searchSql('failures', 'desc'), oldest: searchSql('failures', 'asc') },
};

export interface SearchRequest extends ListRequest {
  header?: { name: string; value: string } | undefined;
  error?: string | undefined;
  /** Rows that the statement reads at most. */
  rowsMax: number;
}

export interface SearchPage {
  events: EventSummary[];
  /** The search goes on behind this seq; `undefined` if everything was searched. */
  reached: string | undefined;
}

/** The statement and its values: exported separately, so that a test can run EXPLAIN. */
export function searchStatement(schema: string, request: SearchRequest): { text: string; values: string[] } {
  const { order, after, header, error } = request;
  const driver = error === undefined ? 'log' : 'failures';
  const seq = error === undefined ? 'e.seq' : 'f.seq';
  const near = new Conditions([String(request.limit), String(request.rowsMax)])
    .where(request.seqFrom, (v) => `${seq} >= ${v}::bigint`)
    .where(request.seqBefore, (v) => `${seq} < ${v}::bigint`)
    .where(after, (v) => `${seq} ${order === 'newest' ? '<' : '>'} ${v}::bigint`);
  // What an index covers narrows the window; in a window of failures it is checked afterwards.
  if (driver === 'log') whereEvent(near, request.events);
  const text = near.into(statements[driver][order](schema));
  const search = new Conditions(near.values);
  if (driver === 'failures') whereEvent(search, request.events);
  search
    .where(error, (v) => `strpos(n.error, ${v}) > 0`)
    .where(header && JSON.stringify({ [header.name]: header.value }), (v) => `e.headers @> ${v}::jsonb`)
    .where(
      request.status,
      (v) => `(select w.status from ${quoted(schema)}.outbox_status w where w.seq = e.seq limit 1) = ${v}`,
    );
  return { text: search.into(text.replaceAll(searchGoesHere, conditionsGoHere)), values: search.values };
}

const quoted = perSchema((s) => s);

interface SearchRow {
  events: SummaryRow[];
  found: number;
  read: number;
  first: string | null;
  last: string | null;
}

/** One page of a search. It may be empty although there is more to search. */
export async function search(db: Executor, schema: string, request: SearchRequest): Promise<SearchPage> {
  const { text, values } = searchStatement(schema, request);
  const [row] = await readJson<SearchRow>(db, text, values);
  const { events, found, read, first, last } = row as SearchRow;
  const summaries = events.map(toSummary);
  if (found === request.limit) return { events: summaries, reached: summaries.at(-1)?.seq };
  if (read < request.rowsMax || first === null || last === null) return { events: summaries, reached: undefined };
  const newest = request.order === 'newest';
  const end = newest ? first : last;
  if (request.error === undefined || first === last) return { events: summaries, reached: end };
  // The window may end between two failures of one event: the next page reads that event again, as a whole.
  const before = (BigInt(end) + (newest ? 1n : -1n)).toString();
  return { events: summaries.filter(({ seq }) => seq !== end), reached: before };
}
