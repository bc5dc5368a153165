import type { Executor } from '../../database/executor.ts';
import { perSchema } from '../../database/identifier.ts';
import { type LogPart, orphansMax } from '../examining/next-part.ts';
import { readJson } from '../read-json.ts';

const requeueOrphansSql = perSchema(
  (s) => `
select to_json(${s}.requeue_orphans($1::text::bigint, $2::text::bigint, ${orphansMax}))::text as json`,
);

/** Puts up to 1,000 orphans of a part of the log into the queue, in order of seq. Returns how many. */
export async function requeueOrphans(db: Executor, schema: string, { first, beyond }: LogPart): Promise<number> {
  const [count = 0] = await readJson<number>(db, requeueOrphansSql(schema), [first, beyond]);
  return count;
}
