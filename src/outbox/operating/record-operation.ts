import type { Executor } from '../../database/executor.ts';
import { perSchema } from '../../database/identifier.ts';
import { readJson } from '../read-json.ts';

/** See migrations/routines/start_operation.sql and finish_operation.sql for the contract and the rationale. */
const startOperationSql = perSchema(
  (s) => `
select to_json(${s}.start_operation($1::text, $2::text, $3::text::jsonb, $4::text)::text)::text as json`,
);

const finishOperationSql = perSchema(
  (s) => `
select to_json(${s}.finish_operation($1::text::bigint, $2::text::bigint, $3::text))::text as json`,
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
