import type { Executor } from '../../database/executor.ts';
import { perSchema } from '../../database/identifier.ts';

/** See migrations/routines/begin_trial.sql for the contract and the rationale. */
const beginTrialSql = perSchema((s) => `select ${s}.begin_trial($1::bigint, $2::bigint)`);

/** Counts the trial of a prime suspect before it begins. Returns false if the relay no longer owns the event. */
export async function beginTrial(db: Executor, schema: string, seq: string, token: string): Promise<boolean> {
  const { rows } = await db.query(beginTrialSql(schema), [token, seq]);
  return rows[0]?.begin_trial === true;
}
