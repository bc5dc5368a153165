import type { Executor } from '../database/executor.ts';
import { perSchema } from '../database/identifier.ts';
import { readJson } from './read-json.ts';

const momentSql = perSchema(
  (s) => `
select json_build_object('now', now(), 'lastSeq', coalesce((select max(seq) from ${s}.outbox_events), 0)::text)::text
       as json`,
);

/**
 * The database's time and the end of its log. A bulk operation takes only what was there by then: events that die
 * again as fast as they are retried must not keep it going for ever.
 */
export async function moment(db: Executor, schema: string): Promise<{ now: string; lastSeq: string }> {
  const [row] = await readJson<{ now: string; lastSeq: string }>(db, momentSql(schema));
  return row as { now: string; lastSeq: string };
}
