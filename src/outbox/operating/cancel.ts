import type { Executor } from '../../database/executor.ts';
import { perSchema } from '../../database/identifier.ts';
import { arrayText, readJson } from '../read-json.ts';

/** See migrations/routines/cancel_events.sql for the contract and the rationale. */
const cancelSql = perSchema((s) => `select ${s}.cancel_events($1::text::bigint[], $2::text, $3::text)::text as json`);

/** The result of one statement that cancels events. */
export interface CancelledChunk {
  /** Events cancelled. */
  count: number;
  /** How many of them a live relay had claimed. */
  running: number;
  /** Events that were delivered before. */
  delivered: number;
  /** How many of the given events were processed, lowest seq first: fewer than all if too many are deferred behind them. */
  taken: number;
}

/** Cancels undelivered events, as discarded dead letters, and undefers the events behind them. */
export async function cancel(
  db: Executor,
  schema: string,
  seqs: readonly string[],
  { by, reason }: { by: string; reason: string },
): Promise<CancelledChunk> {
  const [result] = await readJson<CancelledChunk>(db, cancelSql(schema), [arrayText(seqs), reason, by]);
  return result as CancelledChunk;
}
