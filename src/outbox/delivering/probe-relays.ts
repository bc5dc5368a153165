import type { Executor } from '../../database/executor.ts';
import { perSchema } from '../../database/identifier.ts';
import type { LostRelay } from './declare-relays-lost.ts';

const probeRelaysSql = perSchema((s) => `select ${s}.probe_relays($1::bigint, $2::text, $3::bigint[], $4::bigint[])`);

/** A relay that may have ended without deregistering. */
export interface SuspectRelay extends LostRelay {
  hostId: string | null;
  processId: string | null;
  /** When its lock was found free, in microseconds of the database's clock; `0` for a relay without a lock. */
  freeSince: string;
}

export interface ProbedRelays {
  /** The server process that ran the statement. */
  session: number;
  /** Whether the caller itself is registered. */
  registered: boolean;
  /** By the database's clock, so negative after it was set back. */
  serverUpMs: number;
  suspects: SuspectRelay[];
  /** The relays that this call declared lost. */
  lost: SuspectRelay[];
}

/** Finds relays that may have ended, and declares those of an earlier probe lost that the caller passes. */
export async function probeRelays(
  db: Executor,
  schema: string,
  ownToken: string,
  ownHostId: string | undefined,
  lost: readonly SuspectRelay[],
): Promise<ProbedRelays> {
  const { rows } = await db.query(probeRelaysSql(schema), [
    ownToken,
    ownHostId ?? null,
    lost.map(({ token }) => token),
    lost.map(({ freeSince }) => freeSince),
  ]);
  const found = rows[0]?.probe_relays;
  return (typeof found === 'string' ? JSON.parse(found) : found) as ProbedRelays;
}
