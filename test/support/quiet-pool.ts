import pg from 'pg';

/**
 * A pool whose connections may break: by a fault that the test injects, or because the database is dropped while the
 * last of them say goodbye. Unheard, that would end the process.
 */
export function quietPool(connectionString: string, options: pg.PoolConfig = {}): pg.Pool {
  const pool = new pg.Pool({ connectionString, ...options });
  pool.on('error', () => {});
  pool.on('connect', (client) => client.on('error', () => {}));
  return pool;
}
