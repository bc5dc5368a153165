import type { Executor } from '../../database/executor.ts';
import { perSchema } from '../../database/identifier.ts';
import { arrayText, readJson } from '../read-json.ts';

/** See migrations/routines/make_due.sql for the contract and the rationale. */
const makeDueSql = perSchema((s) => `select ${s}.make_due($1::text::bigint[])::text as json`);

/** The result of one statement on undelivered events. */
export interface UndeliveredChange {
  /** Events changed. */
  count: number;
  /** Events left unchanged because a live relay has claimed them. */
  inFlight: number;
  /** How many of the given events were processed, lowest seq first: fewer than all if too many are deferred behind them. */
  taken: number;
}

/** Makes delayed events and events in backoff due now, and the events deferred behind them. */
export async function makeDue(db: Executor, schema: string, seqs: readonly string[]): Promise<UndeliveredChange> {
  const [result] = await readJson<UndeliveredChange>(db, makeDueSql(schema), [arrayText(seqs)]);
  return result as UndeliveredChange;
}
