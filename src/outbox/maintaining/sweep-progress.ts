import type { Executor } from '../../database/executor.ts';
import { perSchema } from '../../database/identifier.ts';
import { readJson } from '../read-json.ts';

const sweepProgressSql = perSchema(
  (s) => `
with gone as (
  delete from ${s}.outbox_progress p
   where not exists (select from ${s}.outbox_relays r where r.token = p.relay and r.ended_at is null)
  returning p.seq
)
select to_json(count(*))::text as json from gone`,
);

/** Deletes what handlers of relays that crashed had reported: at most what those had in flight. Safe to repeat. */
export async function sweepProgress(db: Executor, schema: string): Promise<number> {
  const [count = 0] = await readJson<number>(db, sweepProgressSql(schema), []);
  return count;
}
