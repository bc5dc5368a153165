import type { Executor } from '../../database/executor.ts';
import { perSchema } from '../../database/identifier.ts';

// Declaring a relay lost updates its row, instead of comparing times in every claim: the row lock decides between a late
// heartbeat and the relay that declares it lost, so never both win. No relay is declared lost while the server is younger than a lease: no relay
// could renew while it was down, and most are about to. A start time in the future means that the clock was set back since;
// then only the caller can know that the server has been up for a lease. No relay is declared lost either when the clock is
// later than the caller can explain: it was set forward, and every lease looks expired.
const declareRelaysLostSql = perSchema(
  (s) => `
update ${s}.outbox_relays set ended_at = now(), ended_as = 'lost'
 where ended_at is null and token <> $1::bigint
   and (pg_postmaster_start_time() < now() - $2::double precision * interval '1 millisecond'
        or $4::boolean and pg_postmaster_start_time() > now())
   and date_part('epoch', now()) * 1000 <= $5::double precision
   and lease_until < now() - $3::double precision * interval '1 millisecond'
returning token, name, host, pid`,
);

export interface LostRelay {
  token: string;
  name: string;
  host: string;
  pid: number;
}

export interface DeclareLostOptions {
  ownToken: string;
  /** No relay is declared lost while the server is younger than this. */
  serverUpMs: number;
  /** How long ago a lease must have expired. */
  overdueMs: number;
  /** Whether the caller has been connected to the server for `serverUpMs`. Default `false`. */
  inTouch?: boolean;
  /** No relay is declared lost if the database's clock, in milliseconds, is later than this. Default: no limit. */
  clockMsMax?: number;
}

/**
 * Declares those relays lost whose lease expired `overdueMs` ago. The events that they claimed are free for the next claim of
 * any relay.
 */
export async function declareRelaysLost(
  db: Executor,
  schema: string,
  { ownToken, serverUpMs, overdueMs, inTouch = false, clockMsMax = Number.MAX_SAFE_INTEGER }: DeclareLostOptions,
): Promise<LostRelay[]> {
  const { rows } = await db.query(declareRelaysLostSql(schema), [ownToken, serverUpMs, overdueMs, inTouch, clockMsMax]);
  return rows as unknown as LostRelay[];
}
