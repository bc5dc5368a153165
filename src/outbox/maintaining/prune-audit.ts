import type { Executor } from '../../database/executor.ts';
import { perSchema } from '../../database/identifier.ts';
import { readJson } from '../read-json.ts';

/** Operations are kept at least this long, also where events are not. */
const keepMsMin = 90 * 86_400_000;

const pruneAuditSql = perSchema(
  (s) => `
with gone as (
  delete from ${s}.outbox_audit a
   where a.id = any (array(
     select x.id from ${s}.outbox_audit x order by x.id limit $1::text::integer))
     and a.started_at < now() - $2::text::double precision * interval '1 millisecond'
  returning a.id
)
select to_json(count(*))::text as json from gone`,
);

/** Removes the oldest rows of the audit table that are older than events are kept, and older than 90 days. Returns how many. */
export async function pruneAudit(
  db: Executor,
  schema: string,
  { keepMs, rowsMax }: { keepMs: number; rowsMax: number },
): Promise<number> {
  if (keepMs === Number.POSITIVE_INFINITY) return 0;
  const values = [String(rowsMax), String(Math.max(keepMs, keepMsMin))];
  const [count = 0] = await readJson<number>(db, pruneAuditSql(schema), values);
  return count;
}
