import type pg from 'pg';

/**
 * For clients that do not give a connection back whose BEGIN, COMMIT or ROLLBACK has failed, and would wait for it when they close.
 * Returns what ends all connections of the pool, one by one. Call it before the first connection is opened.
 */
export function endingConnections(pool: pg.Pool): () => Promise<void> {
  const clients = new Set<pg.PoolClient>();
  pool.on('error', () => {});
  pool.on('connect', (client) => {
    clients.add(client);
    client.on('error', () => {});
  });
  return async () => {
    pool.end().catch(() => {});
    await Promise.all([...clients].map((client) => (client as unknown as pg.Client).end().catch(() => {})));
  };
}
