import type { Executor } from '../../database/executor.ts';
import { perSchema } from '../../database/identifier.ts';
import { arrayText, readJson } from '../read-json.ts';

/** See migrations/routines/release.sql for the contract and the rationale. */
const releaseSql = perSchema((s) => `select ${s}.release($1::text::bigint[])::text as json`);

/** What was done with undelivered events. */
export interface UndeliveredResult {
  /** How many events were changed. */
  count: number;
  /** How many were left alone because a living relay holds them. */
  inFlight: number;
}

/** Makes events due now that are delayed or in backoff. `undefer` is to be called when this has committed. */
export async function release(db: Executor, schema: string, seqs: readonly string[]): Promise<UndeliveredResult> {
  const [result] = await readJson<UndeliveredResult>(db, releaseSql(schema), [arrayText(seqs)]);
  return result as UndeliveredResult;
}
