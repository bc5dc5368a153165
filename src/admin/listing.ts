import type { Executor } from '../database/executor.ts';
import type { EventSummary } from '../outbox/operating/list.ts';
import { list } from '../outbox/operating/list.ts';
import type { DeadLetter } from '../outbox/operating/list-dead-letters.ts';
import { listDeadLetters } from '../outbox/operating/list-dead-letters.ts';
import { fromCursor, toCursor } from './cursor.ts';
import type { DeadLetterFilter, ListFilter } from './filters.ts';
import { checkDeadLetterFilter, checkListFilter } from './filters.ts';
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
