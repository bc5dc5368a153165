import type { Executor } from '../../database/executor.ts';
import { perSchema } from '../../database/identifier.ts';
import { arrayText, readJson } from '../read-json.ts';
import type { UndeliveredResult } from './release.ts';

/** See migrations/routines/cancel_events.sql for the contract and the rationale. */
const cancelSql = perSchema((s) => `select ${s}.cancel_events($1::text::bigint[], $2::text)::text as json`);

/** Gives undelivered events up, as discarded dead letters. `undefer` is to be called when this has committed. */
export async function cancel(
  db: Executor,
  schema: string,
  seqs: readonly string[],
  reason: string,
): Promise<UndeliveredResult> {
  const [result] = await readJson<UndeliveredResult>(db, cancelSql(schema), [arrayText(seqs), reason]);
  return result as UndeliveredResult;
}
