import type { Executor } from '../../database/executor.ts';
import { perSchema } from '../../database/identifier.ts';
import { readJson } from '../read-json.ts';

/** See migrations/routines/prune_audit.sql for the contract and the rationale. */
const pruneAuditSql = perSchema(
  (s) => `
select to_json(${s}.prune_audit($1::text::integer, $2::text::double precision))::text as json`,
);

/** Removes the oldest rows of the audit table that are older than events are kept, and older than 90 days. Returns how many. */
export async function pruneAudit(
  db: Executor,
  schema: string,
  { keepMs, rowsMax }: { keepMs: number; rowsMax: number },
): Promise<number> {
  if (keepMs === Number.POSITIVE_INFINITY) return 0;
  const values = [String(rowsMax), String(keepMs)];
  const [count = 0] = await readJson<number>(db, pruneAuditSql(schema), values);
  return count;
}
