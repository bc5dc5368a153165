import type { Executor } from '../../database/executor.ts';
import { perSchema } from '../../database/identifier.ts';
import { optional, readJson, toDate } from '../read-json.ts';
import { Conditions, conditionsGoHere } from './conditions.ts';

const listAuditSql = perSchema(
  (s) => `
select json_build_object(
  'id', a.id::text, 'startedAt', a.started_at, 'finishedAt', a.finished_at, 'by', a.operator, 'databaseRole', a.database_role,
  'action', a.action,
  'target', a.target, 'reason', a.reason, 'changed', a.changed, 'error', a.error
)::text as json
  from ${s}.outbox_audit a where true ${conditionsGoHere}
 order by a.id desc limit $1::text::integer`,
);

/** How the text of the column `error` begins if the operation did not fail but was interrupted. */
export const interruptionPrefix = 'interrupted: ';

/** One operation of an operator. */
export interface AuditEntry {
  id: string;
  startedAt: Date;
  /** Absent while it runs, or if its process ended before it did. */
  finishedAt?: Date;
  /** Who: as given, or the database role. */
  by: string;
  /** The database role that logged in. An operator chooses `by`, and not this one. */
  databaseRole: string;
  /** The name of the method of `outbox.admin`, e.g. `retry` or `schedules.pause`. */
  action: string;
  /** What it selected, e.g. `{ "ids": [...] }` or `{ "type": "order.created" }`. Long lists are shortened. */
  target: Record<string, unknown>;
  reason?: string;
  /** How many events or rows it changed. Absent if it has no such number. */
  changed?: number;
  /** Why it failed. */
  error?: string;
  /** Present if its `signal` stopped it before its end: how to continue, e.g. `continue with --after <cursor>`. */
  interrupted?: string;
}

interface AuditRow {
  id: string;
  startedAt: string;
  finishedAt: string | null;
  by: string;
  databaseRole: string;
  action: string;
  target: Record<string, unknown>;
  reason: string | null;
  changed: number | null;
  error: string | null;
}

/** One page of operations, newest first. */
export async function listAudit(
  db: Executor,
  schema: string,
  { after, limit }: { after?: string | undefined; limit: number },
): Promise<AuditEntry[]> {
  const conditions = new Conditions([String(limit)]).where(after, (v) => `a.id < ${v}::bigint`);
  const rows = await readJson<AuditRow>(db, conditions.into(listAuditSql(schema)), conditions.values);
  return rows.map(({ id, startedAt, finishedAt, by, databaseRole, action, target, reason, changed, error }) => ({
    id,
    startedAt: toDate(startedAt),
    ...optional('finishedAt', finishedAt, toDate),
    by,
    databaseRole,
    action,
    target,
    ...optional('reason', reason, String),
    ...optional('changed', changed, Number),
    ...endOf(error),
  }));
}

function endOf(error: string | null): { error?: string; interrupted?: string } {
  if (error?.startsWith(interruptionPrefix)) return { interrupted: error.slice(interruptionPrefix.length) };
  return optional('error', error, String);
}
