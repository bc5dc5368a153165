import type { Executor } from '../../database/executor.ts';
import { perSchema } from '../../database/identifier.ts';
import { arrayText, readJson } from '../read-json.ts';
import type { UndeliveredChange } from './make-due.ts';

/** See migrations/routines/cancel_events.sql for the contract and the rationale. */
const cancelSql = perSchema((s) => `select ${s}.cancel_events($1::text::bigint[], $2::text)::text as json`);

/** Cancels undelivered events, as discarded dead letters, and undefers the events behind them. */
export async function cancel(
  db: Executor,
  schema: string,
  seqs: readonly string[],
  reason: string,
): Promise<UndeliveredChange> {
  const [result] = await readJson<UndeliveredChange>(db, cancelSql(schema), [arrayText(seqs), reason]);
  return result as UndeliveredChange;
}
