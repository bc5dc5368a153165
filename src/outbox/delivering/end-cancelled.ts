import type { Executor } from '../../database/executor.ts';
import { perSchema } from '../../database/identifier.ts';
import { arrayText, readJson } from '../read-json.ts';

const readCancelledSql = perSchema(
  (s) => `
select json_build_object('seq', c.seq::text, 'reason', c.reason, 'isOwn', c.relay = $1::text::bigint)::text as json
  from ${s}.outbox_cancellations c
 where c.relay = $1::text::bigint
    or not exists (select from ${s}.outbox_relays r where r.token = c.relay and r.ended_at is null)`,
);

/** An event that was cancelled while a relay had claimed it. */
export interface CancelledEvent {
  seq: string;
  /** Who cancelled it, and why. */
  reason: string;
  /** Whether it was this relay; otherwise that relay has ended. */
  isOwn: boolean;
}

/** The cancelled events that this relay has to stop delivering, and those that relays left which have ended. */
export function readCancelled(db: Executor, schema: string, token: string): Promise<CancelledEvent[]> {
  return readJson<CancelledEvent>(db, readCancelledSql(schema), [token]);
}

/** See migrations/routines/end_cancelled.sql for the contract and the rationale. */
const endCancelledSql = perSchema(
  (s) => `select to_json(${s}.end_cancelled($1::text::bigint, $2::text::bigint[]))::text as json`,
);

/**
 * The relay no longer delivers these cancelled events: later events of their keys may start. Also ends those of relays that
 * have ended.
 */
export async function endCancelled(
  db: Executor,
  schema: string,
  token: string,
  seqs: readonly string[],
): Promise<number> {
  const [count = 0] = await readJson<number>(db, endCancelledSql(schema), [token, arrayText(seqs)]);
  return count;
}
