import type { Executor } from '../../database/executor.ts';
import { perSchema } from '../../database/identifier.ts';
import { type LogPart, unqueuedMax } from '../examining/next-part.ts';
import { readJson } from '../read-json.ts';

const requeueUnqueuedSql = perSchema(
  (s) => `
select to_json(${s}.requeue_unqueued($1::text::bigint, $2::text::bigint, ${unqueuedMax}))::text as json`,
);

/** Puts up to 1,000 unqueued events of a part of the log into the queue, in order of seq. Returns how many. */
export async function requeueUnqueued(db: Executor, schema: string, { first, beyond }: LogPart): Promise<number> {
  const [count = 0] = await readJson<number>(db, requeueUnqueuedSql(schema), [first, beyond]);
  return count;
}
