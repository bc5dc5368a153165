import pg from 'pg';
import { findServer } from './connect.ts';
import type { ConnectionOptions } from './connection-options.ts';
import { resolveConnection } from './connection-options.ts';

/** A pool for a few statements by an operator, on the first server that is suitable. It fails rather than hang. */
export async function openPool(
  options: ConnectionOptions,
  applicationName: string,
  queryTimeoutMs = 120_000,
): Promise<pg.Pool> {
  const server = await findServer(resolveConnection(options), applicationName);
  const pool = new pg.Pool({
    ...server.config,
    application_name: applicationName,
    max: 2,
    connectionTimeoutMillis: 8_000,
    // Long enough for a bulk statement over a large outbox; short enough to notice a peer that went silent.
    query_timeout: queryTimeoutMs,
  });
  // An idle connection that breaks is reported here, and by the next statement. Without a listener, 'error' ends the process.
  pool.on('error', () => {});
  return pool;
}
