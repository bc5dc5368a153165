import type { Executor } from '../../database/executor.ts';
import { perSchema } from '../../database/identifier.ts';

const holdRelayLockSql = perSchema((s) => `select ${s}.hold_relay_lock($1::bigint)`);

/**
 * Takes the session lock that shows other relays that this one is alive. Returns whether the session holds it, and `undefined`
 * if the relay was declared lost. Only for a connection that is one session: behind a pooler the lock would stay in a session
 * of other clients.
 */
export async function holdRelayLock(db: Executor, schema: string, token: string): Promise<boolean | undefined> {
  const { rows } = await db.query(holdRelayLockSql(schema), [token]);
  return (rows[0]?.hold_relay_lock as boolean | null) ?? undefined;
}
