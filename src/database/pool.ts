import pg from 'pg';
import { findServer } from './connect.ts';
import { parseConnectionString } from './connection-string.ts';

/**
 * A pool for a few statements by an operator, on the first server of the connection string that will do. It gives up rather
 * than hang.
 */
export async function openPool(
  connectionString: string,
  applicationName: string,
  queryTimeoutMs = 120_000,
): Promise<pg.Pool> {
  const server = await findServer(parseConnectionString(connectionString), applicationName);
  const pool = new pg.Pool({
    connectionString: server.connectionString,
    application_name: applicationName,
    max: 2,
    connectionTimeoutMillis: 8_000,
    // Long enough for a bulk statement over a large outbox; short enough to notice a peer that went silent.
    query_timeout: queryTimeoutMs,
  });
  // An idle connection that breaks reports it here; the next statement tells, and an unheard 'error' ends the process.
  pool.on('error', () => {});
  return pool;
}
