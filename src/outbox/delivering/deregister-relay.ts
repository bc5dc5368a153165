import type { Executor } from '../../database/executor.ts';
import { perSchema } from '../../database/identifier.ts';

const deregisterRelaySql = perSchema(
  (s) =>
    `update ${s}.outbox_relays set ended_at = now(), ended_as = 'stopped' where token = $1::bigint and ended_at is null`,
);

/** Deregisters a relay. Events it still owns are free immediately. */
export async function deregisterRelay(db: Executor, schema: string, token: string): Promise<void> {
  await db.query(deregisterRelaySql(schema), [token]);
}
