import type { Executor } from '../../database/executor.ts';
import { perSchema } from '../../database/identifier.ts';
import { readJson } from '../read-json.ts';

const readLogEndSql = perSchema(
  (s) => `
select json_build_object('now', now(),
                         'lastDeath', greatest(now(), (select max(dead_at) from ${s}.outbox_dead_letters)),
                         'lastSeq', coalesce((select max(seq) from ${s}.outbox_events), 0)::text)::text as json`,
);

export interface LogEnd {
  /** The database's time. */
  now: string;
  /** No existing dead letter is newer: the database's time, or later if its clock was set back. */
  lastDeath: string;
  /** The end of the log. */
  lastSeq: string;
}

/**
 * The database's time and the end of its log. A bulk operation processes only what existed by then: events that fail again as
 * fast as they are retried must not keep it running forever.
 */
export async function readLogEnd(db: Executor, schema: string): Promise<LogEnd> {
  const [row] = await readJson<LogEnd>(db, readLogEndSql(schema));
  return row as LogEnd;
}
