import type { ArrayQuery } from '../../database/executor.ts';
import { perSchema } from '../../database/identifier.ts';

/** See migrations/routines/server_run.sql for the contract and the rationale. A call alone needs no transaction around it. */
const readServerRunSql = perSchema((s) => `select ${s}.server_run()`);

/** Identifies the server, and changes with everything that can lose what a relay has claimed: a restart, a crash, a failover. */
export async function readServerRun(query: ArrayQuery, schema: string): Promise<string> {
  const { rows } = await query(readServerRunSql(schema), []);
  const [server] = rows[0] as [string];
  return server;
}
