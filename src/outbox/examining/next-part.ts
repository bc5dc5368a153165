import type { Executor } from '../../database/executor.ts';
import { perSchema } from '../../database/identifier.ts';
import { readJson } from '../read-json.ts';

/** A part of the log: `first` <= seq < `beyond`. */
export interface LogPart {
  first: string;
  beyond: string;
}

// Up to 10^12 seqs between two partitions have no event.
const nextPartSql = perSchema(
  (s) => `
select json_build_object('first', seq::text, 'beyond', (seq + $2::text::bigint)::text)::text as json
  from ${s}.outbox_events where seq >= $1::text::bigint order by seq limit 1`,
);

/** The part of this many seqs that begins with the first event at or after `from`; `undefined` past the end of the log. */
export async function nextPart(db: Executor, schema: string, from: string, seqs: number): Promise<LogPart | undefined> {
  const [part] = await readJson<LogPart>(db, nextPartSql(schema), [from, String(seqs)]);
  return part;
}

/** Unqueued events that one call of find_unqueued counts. */
export const unqueuedMax = 1_000;
