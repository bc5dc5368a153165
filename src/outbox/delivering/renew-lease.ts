import type { Executor } from '../../database/executor.ts';
import { perSchema } from '../../database/identifier.ts';

const renewLeaseSql = perSchema(
  (s) => `
update ${s}.outbox_relays
   set heartbeat_at = now(), lease_until = now() + $2::double precision * interval '1 millisecond', stats = $3::text::jsonb,
       session_lock = session_lock and $4::boolean
 where token = $1::bigint and ended_at is null
returning token`,
);

/**
 * Extends the lease on everything the relay owns, in one row. With `isSession` false, its connection cannot hold a session lock,
 * and only the lease counts. Returns false if the relay was declared lost.
 */
export async function renewLease(
  db: Executor,
  schema: string,
  token: string,
  leaseMs: number,
  stats: unknown,
  isSession = true,
): Promise<boolean> {
  const { rows } = await db.query(renewLeaseSql(schema), [token, leaseMs, JSON.stringify(stats), isSession]);
  return rows.length === 1;
}
