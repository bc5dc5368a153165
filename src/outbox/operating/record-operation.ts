import type { Executor } from '../../database/executor.ts';
import { perSchema } from '../../database/identifier.ts';
import { readJson } from '../read-json.ts';

const startOperationSql = perSchema(
  (s) => `
insert into ${s}.outbox_audit (operator, action, target, reason)
values (coalesce(nullif($1::text, ''), session_user), $2::text, $3::text::jsonb, nullif($4::text, ''))
returning to_json(id::text)::text as json`,
);

const finishOperationSql = perSchema(
  (s) => `
update ${s}.outbox_audit set finished_at = now(), changed = $2::text::bigint, error = $3::text where id = $1::text::bigint`,
);

/** What an operator is about to do. */
export interface StartedOperation {
  /** Empty: the database role. */
  by: string;
  action: string;
  /** JSON text. */
  target: string;
  reason: string;
}

/** Writes the row of an operation before it changes anything. Returns its id. */
export async function startOperation(db: Executor, schema: string, operation: StartedOperation): Promise<string> {
  const { by, action, target, reason } = operation;
  const [id] = await readJson<string>(db, startOperationSql(schema), [by, action, target, reason]);
  return id as string;
}

/** Completes the row with what the operation has changed, and why it failed if it did. */
export async function finishOperation(
  db: Executor,
  schema: string,
  id: string,
  result: { changed: number | null; error: string | null },
): Promise<void> {
  const changed = result.changed === null ? null : String(result.changed);
  await db.query(finishOperationSql(schema), [id, changed, result.error]);
}
