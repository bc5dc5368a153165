import type { Executor } from '../../database/executor.ts';
import { perSchema } from '../../database/identifier.ts';

/** See migrations/routines/unshelve.sql for the contract and the rationale. */
const unshelveSql = perSchema((s) => `select ${s}.unshelve($1::text, $2::double precision, $3::integer, $4::boolean)`);

export interface UnshelveRequest {
  destination: string;
  /** Events per second at most, over all relays. */
  rateMax: number;
  /** Events at once at most. */
  countMax: number;
  /**
   * Takes events of random keys instead of the oldest: for a destination that is not known to accept events. Default `false`.
   */
  isTrial?: boolean;
}

/**
 * Moves events that waited for a destination back into the queue, oldest first, at a bounded rate. Moves none while the
 * destination is down or paused, or while another relay is unshelving. Returns the count.
 */
export async function unshelve(db: Executor, schema: string, request: UnshelveRequest): Promise<number> {
  const { destination, rateMax, countMax, isTrial = false } = request;
  const { rows } = await db.query(unshelveSql(schema), [destination, rateMax, countMax, isTrial]);
  return rows[0]?.unshelve as number;
}
