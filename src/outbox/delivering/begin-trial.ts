import type { Executor } from '../../database/executor.ts';
import { perSchema } from '../../database/identifier.ts';

const beginTrialSql = perSchema(
  (s) => `
update ${s}.outbox_queue set rescues = rescues + 1 where seq = $1::bigint and claimed_by = $2::bigint returning seq`,
);

/**
 * Counts the trial of a prime suspect before it begins: if the relay ends during it, nothing else is written. Settling or
 * failing the event undoes it. False: the relay no longer holds the event.
 */
export async function beginTrial(db: Executor, schema: string, seq: string, token: string): Promise<boolean> {
  const { rows } = await db.query(beginTrialSql(schema), [seq, token]);
  return rows.length === 1;
}
