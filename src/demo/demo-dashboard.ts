import pg from 'pg';
import { fromPg } from '../adapters/pg.ts';
import { createOutbox } from '../emit/outbox.ts';
import type { DemoDatabase } from './demo-database.ts';

export interface DemoDashboard {
  url: string;
  close(): Promise<void>;
}

/** Serves the dashboard of the demo's outbox on loopback. */
export async function openDemoDashboard(database: DemoDatabase, port: number): Promise<DemoDashboard> {
  const { connectionString, schemas } = database;
  const { serveDashboard } = await import('../dashboard/serve-dashboard.ts');
  const pool = new pg.Pool({ connectionString, max: 2, connectionTimeoutMillis: 8_000, query_timeout: 30_000 });
  pool.on('error', () => {}); // The next query reports it.
  const { admin } = createOutbox({ db: fromPg(pool), schema: schemas.outbox });
  try {
    const server = await serveDashboard({ outboxes: { demo: admin }, port });
    return {
      url: server.url,
      close: async () => {
        await server.stop();
        await pool.end();
      },
    };
  } catch (error) {
    await pool.end();
    throw error;
  }
}
