import pg from 'pg';

/** A pool for a few statements by an operator: opens nothing yet, and gives up rather than hang. */
export function openPool(connectionString: string, applicationName: string, queryTimeoutMs = 120_000): pg.Pool {
  const pool = new pg.Pool({
    connectionString,
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
