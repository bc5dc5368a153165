import type { Executor } from '../database/executor.ts';
import type { DeadLetterCount } from '../outbox/operating/count-dead-letters.ts';
import { countDeadLetters } from '../outbox/operating/count-dead-letters.ts';
import type { EventSummary } from '../outbox/operating/list.ts';
import { list } from '../outbox/operating/list.ts';
import type { DeadLetter } from '../outbox/operating/list-dead-letters.ts';
import { listDeadLetters } from '../outbox/operating/list-dead-letters.ts';
import { readLogEnd } from '../outbox/operating/read-log-end.ts';
import { search } from '../outbox/operating/search.ts';
import { seqsOf } from './chunks.ts';
import { fromCursor, toCursor } from './cursor.ts';
import type { DeadLetterFilter, DeadLetterTarget, ListFilter, SearchFilter } from './filters.ts';
import { checkDeadLetterFilter, checkDeadLetterTarget, checkListFilter, checkSearchFilter } from './filters.ts';
import { seqRange } from './seq-range.ts';

/** One page of events. */
export async function listEvents(
  db: Executor,
  schema: string,
  filter: ListFilter,
): Promise<{ events: EventSummary[]; next?: string }> {
  const { limit, ...request } = checkListFilter(filter);
  const kind = request.order === 'newest' ? 'events-newest' : 'events-oldest';
  const after = fromCursor(kind, filter.after);
  const range = await seqRange(db, schema, request.events);
  // One more row than requested shows whether there is another page.
  const found = await list(db, schema, { ...request, ...range, after, limit: limit + 1 });
  return { events: found.slice(0, limit), ...nextAfter(found, limit, (seq) => toCursor(kind, seq)) };
}

/** Rows that one page of a search reads: 0.1 s where nothing matches. */
const searchRowsMax = 10_000;

/** One page of a search. Without a header and an error text it is a page of events. */
export async function searchEvents(
  db: Executor,
  schema: string,
  filter: SearchFilter,
): Promise<{ events: EventSummary[]; next?: string }> {
  const { header, error, limit, ...request } = checkSearchFilter(filter);
  if (header === undefined && error === undefined) {
    const { header: _header, error: _error, ...rest } = filter;
    return listEvents(db, schema, rest);
  }
  const kind = request.order === 'newest' ? 'events-newest' : 'events-oldest';
  const after = fromCursor(kind, filter.after);
  const range = await seqRange(db, schema, request.events);
  const { events, reached } = await search(db, schema, {
    ...request,
    ...range,
    header,
    error,
    after,
    limit,
    rowsMax: searchRowsMax,
  });
  return { events, ...(reached !== undefined && { next: toCursor(kind, reached) }) };
}

const lettersCounted = 100_000;

export async function countMatchingLetters(
  db: Executor,
  schema: string,
  target: DeadLetterTarget,
): Promise<DeadLetterCount> {
  const checked = checkDeadLetterTarget(target);
  if ('conditions' in checked) {
    const { lastDeath } = await readLogEnd(db, schema);
    return countDeadLetters(db, schema, { letters: checked.conditions, diedUntil: lastDeath }, lettersCounted);
  }
  const total = { count: 0, blocking: 0, partlyDelivered: 0 };
  for (const seqs of (await seqsOf(db, schema, checked.references)).lists) {
    const part = await countDeadLetters(db, schema, { seqs }, lettersCounted);
    total.count += part.count;
    total.blocking += part.blocking;
    total.partlyDelivered += part.partlyDelivered;
  }
  return total;
}

/** One page of dead letters. */
export async function listLetters(
  db: Executor,
  schema: string,
  filter: DeadLetterFilter,
): Promise<{ deadLetters: DeadLetter[]; next?: string }> {
  const { letters, limit } = checkDeadLetterFilter(filter);
  const after = fromCursor('dead-letters', filter.after);
  const found = await listDeadLetters(db, schema, { letters, after, limit: limit + 1 });
  return { deadLetters: found.slice(0, limit), ...nextAfter(found, limit, (seq) => toCursor('dead-letters', seq)) };
}

function nextAfter(
  found: readonly { seq: string }[],
  limit: number,
  cursor: (seq: string) => string,
): { next?: string } {
  const last = found.length > limit ? found[limit - 1] : undefined;
  return last ? { next: cursor(last.seq) } : {};
}
